"""Files of cases that need a process of their own, with accelerators that are not there."""

import pytest

from made.processes import needs, run_cases

SLOW, SMALL, ALL = (
    pytest.mark.slow,
    {"BENCHBOOK_TEST_LOADERS": "small"},
    {"BENCHBOOK_TEST_LOADERS": "all"},
)
MPS, CUDA, ROCM, XPU = ({"BENCHBOOK_TEST_KIND": kind} for kind in ("mps", "cuda", "rocm", "xpu"))
TWO_CPUS, EIGHT_CPUS = (
    {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"} for count in (2, 8)
)


def case(
    name: str, framework: str, options: str, variables: dict[str, str], *marks: pytest.MarkDecorator
):
    about = options or "-".join(variables.values())
    return pytest.param(
        name, framework, options, variables, marks=(*marks, needs(framework)), id=f"{name}-{about}"
    )


@pytest.mark.parametrize(
    ("name", "framework", "options", "variables"),
    [
        # MPS is the stricter of the two: what breaks on CUDA alone is its loaders and its TF32.
        case("cases_impostor", "torch", "", MPS | SMALL),
        case("cases_impostor", "torch", "", MPS | ALL, SLOW),
        case("cases_impostor", "torch", "", CUDA | ALL, SLOW),
        case("cases_impostor", "torch", "", ROCM | SMALL, SLOW),
        case("cases_impostor", "torch", "", XPU | SMALL, SLOW),
        case("cases_jax", "jax", "not slow", TWO_CPUS),
        case("cases_jax", "jax", "slow", TWO_CPUS, SLOW),
        case("cases_jax", "jax", "not slow", EIGHT_CPUS, SLOW),
        case("cases_tensorflow", "tensorflow", "not slow", {}, SLOW),
        case("cases_tensorflow", "tensorflow", "slow", {}, SLOW),
    ],
)
def test_cases_pass_in_a_process_of_their_own(monkeypatch, name, framework, options, variables):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert " passed" in run_cases(f"rehearsal/{name}.py", framework, "-m", options)
