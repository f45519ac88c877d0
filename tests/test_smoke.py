"""Every study but those of test_session.py, from its notebook to its section of the report."""

import pytest

from benchbook import layout, profiles, records, studies
from processes import study

STUDIES = {
    name: [chart.name for chart in study.charts]
    for name, study in studies.every().items()
    if name not in ("calibrate", "mnist_speedup")
}


def test_every_study_has_a_section_in_the_report():
    assert {*studies.every(), "aggregate"} == set(layout.notebooks())


@pytest.mark.notebook
def test_studies_measure_every_point_and_show_it(tmp_path):
    process = study(tmp_path, "--profile", "smoke", "--studies", " ".join(STUDIES))
    text = process.communicate(timeout=1200)[0]
    assert process.returncode == 0, text
    rows = records.merge(records.find(tmp_path / "runs"))
    points = profiles.read("smoke", " ".join(STUDIES))
    measured = rows.groupby(["study", "point"])["run_id"].nunique().to_dict()
    assert measured == {(point.study, point.name): 1 for point in points}
    failed = records.without_refusals(rows).query("status != 'ok'")
    assert failed[["point", "status", "message"]].to_dict("records") == []
    page = (tmp_path / "report" / "index.html").read_text()
    assert [figure for name in STUDIES for figure in STUDIES[name] if f'id="{figure}"' not in page] == []
