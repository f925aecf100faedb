"""The results in the repository, and the page that is made of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from taciturn.errors import RunError
from taciturn.paper import claims, measures, page, reading, summary, tables, texts, words
from taciturn.paper.checks import FAILS, HOLDS, IN_PART, NO, SAYS, YES, Check, Claim
from taciturn.paper.comparing import collapsed
from taciturn.paper.experiments import EMNIST, EXPERIMENTS, MAIN, SHAKESPEARE

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"


@pytest.fixture(scope="module")
def committed():
    return reading.there(RESULTS)


def test_the_page_is_what_its_files_say():
    assert (DOCS / "results.md").read_text("utf-8") == page.make(RESULTS, Path("results"))


def test_upload_of_full_communication_to_the_digit(committed):
    for experiment, gib in ((EMNIST, "4.49"), (SHAKESPEARE, "3.06")):
        if experiment.name in committed:
            result = committed[experiment.name]
            assert {f"{value:.2f}" for value in result.gib("full", 100)} == {gib}


def test_shakespeare_as_printed(committed):
    result = committed[SHAKESPEARE.name]
    assert abs(result.arms["full"].at(100).mean() - 22.86) < 1.5
    assert result.arms["random ou"].at(100).mean() < 10


def test_emnist_as_printed(committed):
    if EMNIST.name not in committed:
        pytest.skip("not run yet")
    result = committed[EMNIST.name]
    assert abs(result.arms["full"].at(100).mean() - 76.51) < 2
    assert abs(measures.thresholds_after_first(result, "adaptive zero").mean() - 0.459) < 0.06


def test_other_settings_are_not_taken_for_those_of_the_experiment(tmp_path):
    has = json.loads((RESULTS / "shakespeare.json").read_text())
    has["settings"]["lr"] = 0.3
    (tmp_path / "shakespeare.json").write_text(json.dumps(has))
    with pytest.raises(RunError, match=r"0\.3"):
        reading.there(tmp_path)


def test_paths_of_an_older_version_are_named(tmp_path):
    has = json.loads((RESULTS / "paths.json").read_text())
    del has["measured"][1]["own_control"]
    (tmp_path / "paths.json").write_text(json.dumps(has))
    with pytest.raises(RunError, match="older version"):
        reading.measured_paths(tmp_path)


@pytest.mark.parametrize("name", tables.TABLES)
def test_tables_are_written_for_people_and_programs(name, tmp_path, made_up):
    recipe = tables.TABLES[name]
    table = recipe.make({e.name: made_up[e.name] for e in recipe.needs})
    csv, markdown = table.write(tmp_path, name)
    rows = csv.read_text().splitlines()
    assert len(rows) == 1 + len(table.rows)
    assert markdown.read_text().startswith(table.title)
    assert tables.NOT_RUN not in csv.read_text()
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_the_main_table_has_what_the_runs_have(made_up):
    result = made_up[EMNIST.name]
    rows = {row[0]: row for row in tables.main_of(result).rows}
    assert list(rows) == list(EMNIST.arms)
    own = rows["adaptive ou"]
    assert own[1] == 3
    np.testing.assert_array_equal(own[2].values, result.arms["adaptive ou"].at(100))
    assert own[3] == 69.67
    assert own[5] == "1 of 3"
    assert own[-1] == "0.7 %"  # 7 of 100 rounds of 10
    assert rows["random unweighted ou constrained"][3] == 69.58


def test_what_is_not_run_is_said_so(made_up):
    result = made_up[EMNIST.name]
    without = result._replace(arms={"full": result.arms["full"]})
    rows = {row[0]: row for row in tables.main_of(without).rows}
    assert rows["adaptive ou"][2] == tables.NOT_RUN
    assert tables.NOT_RUN in tables.clients({}).markdown()
    assert tables.NOT_RUN in tables.TABLES["emnist-settings"].make({}).markdown()


def test_collapses_are_counted_with_their_interval(made_up):
    table = tables.collapses({e.name: made_up[e.name] for e in MAIN})
    (row,) = [row for row in table.rows if row[:2] == ("EMNIST", "adaptive ou")]
    assert row[2:4] == ("1 of 3", "1 to 91 %")  # Clopper and Pearson
    assert ("EMNIST, float32", "adaptive ou", tables.NOT_RUN, None, None) in table.rows


def test_every_verdict_can_be_counted_from_the_page():
    text = (DOCS / "results.md").read_text("utf-8")
    results = reading.there(RESULTS)
    measured = reading.measured_paths(RESULTS)["measured"]
    judged = 0
    for number, claim in enumerate(claims.claims(results, measured), 1):
        start = text.index(f"#### {number}. {claim.text}\n")
        section = re.split(r"\n#{2,4} ", text[start:])[0]
        said = re.findall(r"\| (yes|no|undecided|not run) \|\n", section)
        assert claim.yes_of_all == f"{said.count('yes')} of {len(said)}"
        assert f"**{claim.verdict}**" in section
        counts = " | ".join(str(said.count(word)) for word in SAYS)
        assert f"| {number} | {claim.text} | **{claim.verdict}** | {counts} |" in text
        judged += claim.verdict != "not run"
    assert judged > 10


def test_sentences_come_from_the_numbers(made_up):
    result = made_up[SHAKESPEARE.name]
    accuracy = np.tile([18.5, 18.5, 18.4, 22.0, 22.5], (3, 1))
    arms = {name: result.arms[name] for name in ("full", "adaptive zero", "random zero")}
    arms = {name: arm._replace(accuracy=accuracy) for name, arm in arms.items()}
    stuck = arms["random zero"]._replace(accuracy=np.full((3, 5), 18.5))
    level = arms["adaptive zero"]._replace(threshold=np.full((3, 100), 0.75))
    arms |= {"random zero": stuck, "adaptive zero": level}
    result = result._replace(size=820_522, arms=arms)
    results = {SHAKESPEARE.name: result}
    told = words.plateau(results)
    assert "reaches 18.50 %" in told
    assert "2 of 3 arms leave that plateau by a point, after 80 to 80 rounds" in told
    assert told.endswith(" Every seed of `random zero` ends on it.\n")
    apart = stuck._replace(accuracy=np.tile([[4.0], [18.5], [22.0]], 5))
    told = words.plateau({SHAKESPEARE.name: result._replace(arms=arms | {"random zero": apart})})
    assert "At least half of the seeds of `random zero` end on it or below." in told
    assert words.fits(results, "shakespeare") == (
        "Of one setting that has these arms, *B = 4, lr 0.1, E = 1* comes near the printed "
        "accuracy (within 2 points) and threshold (within 15 %), none near the printed share "
        "(within 5 points).\n"
    )
    assert "`full` ends 0.36 points below the printed accuracy" in words.apart(results)
    assert "405 clients, the paper has 715 (table), 725 (text)" in summary.whose(result)
    assert words.missing(made_up, [SHAKESPEARE.name]) == ""
    assert words.missing(results, [SHAKESPEARE.name]) != ""  # of some arms
    assert "`taciturn paper run emnist,fixed`" in words.missing(results, ["emnist", "fixed"])


def test_settings_that_come_near_are_grouped_by_what_they_come_near(made_up):
    near = made_up[EMNIST.name]
    arms = {name: near.arms[name] for name in ("full", "adaptive zero")}
    arms["full"] = arms["full"]._replace(accuracy=np.full((3, 5), 77.0))
    arms["adaptive zero"] = arms["adaptive zero"]._replace(threshold=np.full((3, 100), 0.46))
    both = {name: near._replace(experiment=EXPERIMENTS[name], arms=arms)
            for name in (EMNIST.name, "emnist-e3-b20")}  # fmt: skip
    assert words.fits(both, "emnist").startswith(
        "Of 2 settings, *E = 2, B = 10* and *E = 3, B = 20* come near the printed accuracy "
        "(within 2 points) and threshold (within 15 %), none near the printed share"
    )
    assert words.fits({}, "emnist") == ""


def test_the_papers_claims_are_counted_apart_from_those_on_our_variant():
    def claim(says, ours=False):
        return Claim("so", f"{says}{ours}", [Check("", "", "", "", one) for one in says], ours=ours)

    found = [claim([YES]), claim([NO]), claim([YES, NO]), claim([YES], True), claim([NO], True)]
    assert [one.verdict for one in found] == [HOLDS, FAILS, IN_PART, HOLDS, FAILS]
    told = summary.summary({}, found, {}).splitlines()
    assert len(told) == 5
    assert "1 of the paper's 3 [claims](#claims) (1, so), and 1 in part" in told[1]
    assert "of 2 claims on `ou constrained`, Taciturn's variant, 1 (4, so), and 0" in told[1]
    assert "1 of the paper's (2, so) and 1 of the variant's (5, so)" in told[2]


def test_a_rate_that_collapsed_runs_pull_down_is_named(made_up):
    result = made_up[EMNIST.name]
    full = result.arms["full"]._replace(accuracy=np.full((3, 5), 70.0))
    spoke = np.repeat([[8], [8], [2]], 100, axis=1)
    ou = result.arms["adaptive ou"]._replace(spoke=spoke)  # its last seed collapses
    told = words.pulled_down({EMNIST.name: result._replace(arms={"full": full, "adaptive ou": ou})})
    assert "`random ou` on EMNIST is 60.0 %, and would be 80.0 % without the runs of" in told
    even = ou._replace(spoke=np.full((3, 100), 8))
    arms = {"full": full, "adaptive ou": even}
    assert words.pulled_down({EMNIST.name: result._replace(arms=arms)}) == ""


def test_one_table_has_one_meaning_of_plus_and_minus(made_up):
    table = tables.thresholds({e.name: made_up[e.name] for e in MAIN})
    printed = [i for i, column in enumerate(table.columns) if column == "paper"]
    (row,) = [row for row in table.rows if row[0] == "adaptive ignore"]
    assert [row[i] for i in printed] == [0.515, 0.24, 0.775, None, 0.775, None]


def test_all_versions_that_occur_are_named(made_up):
    text = page._made_with(
        {EMNIST.name: made_up[EMNIST.name]},
        {"versions": {"device": "cpu", "python": "4", "jax": "1", "numpy": "3"}, "seconds": 1.0,
         "measured": [0]},
    )  # fmt: skip
    assert "Made with python 3, jax 0, numpy 2; python 4, jax 1, numpy 3." in text


def test_captions_say_which_arms_and_until_when():
    for name in ("accuracy", "upload", "thresholds"):
        assert "weighted thresholds only" in texts.CAPTIONS[name]
    assert "A run that diverged has τ ≤ 0 and leaves the axis." in texts.CAPTIONS["thresholds"]
    assert set(texts.CAPTIONS) == set(page.FIGURES)


def test_no_number_of_our_data_is_written_in_code():
    source = Path(page.__file__).parent
    text = "".join(path.read_text("utf-8") for path in source.glob("*.py"))
    for literal in ("405", "59,725", "59725", "eighth", "18.56", "60 to 90", "3,400"):
        assert literal not in text, literal


def test_the_readme_says_what_the_files_say(committed):
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    section = readme[readme.index("## The paper's results") :].partition("\n## ")[0]
    section = " ".join(section.split())
    assert "EMNIST is a subset" in section
    arm, own = "adaptive ou constrained", committed[SHAKESPEARE.name]
    assert f"on Shakespeare {own.share(arm, 100).mean():.0f} % of the upload" in section
    assert abs(own.gap(arm, "full", 100).mean) < 0.5
    for result in (own, committed[EMNIST.name]):
        which = collapsed(result, "adaptive ou", 100)
        assert f"collapses in {which.sum()} of {len(which)} seeds on each data set" in section
        assert not collapsed(result, arm, 100).any()  # "it does not"
    result = committed.get(EMNIST.name, committed["emnist-e1-b20"])
    arms = ("random ignore", "adaptive ou")
    if all(arm in result.arms for arm in arms):
        medians = [np.median(result.arms[arm].at(100)) for arm in arms]
        assert ("`random ignore` ends above `adaptive ou`" in section) == (medians[0] > medians[1])
