"""The choices of a point: SGD on images of 28 x 28 pixels, in ten classes."""

from dataclasses import dataclass

from benchbook.studies.experiments.parameters import LearningRate
from benchbook.studies.experiments.plan import StudyPlan


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A field that is new here would be `name: Annotated[int, Field(ge=1, description="what it
    means")] = 8`."""

    MODEL = "softmax_regression"
    FRAMEWORKS = ("torch",)
    DATASETS = ("digits",)
    VARIANTS = ("reference", "controlled")
    PLAIN_STEP = (
        True  # no scaler, schedule by step or clipping: the notebook prints the step of six lines
    )

    learning_rate: LearningRate = 0.1
