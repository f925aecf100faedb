"""What the page explains: terms, rules, notes and captions; figures in them come from settings."""

from experiments.paper import comparing, paths
from experiments.paper.measures import ROUNDS, TARGET
from experiments.paper.words import points
from taciturn.studies.difference import MARGIN

_TARGET = f"{100 * TARGET:.0f} %"
_POINT = points(comparing.PLATEAU)
_WEIGHTED = "Arms with weighted thresholds only."

CAPTIONS = {
    "fixed-accuracy": "Accuracy by round under fixed thresholds: the median over seeds, and every "
    "seed as a thin line.",
    "fixed-upload": "Clients that upload in a round under fixed thresholds: the median over seeds, "
    "and every seed as a thin line.",
    "accuracy": f"Accuracy by round, and at the right the zone that decides. Lines are medians "
    f"over seeds; where runs of an arm collapsed, every seed is a thin line. The shade of `full` "
    f"goes from its lowest seed to its highest. {_WEIGHTED}",
    "upload": f"Above, upload since the start: the median over seeds; where runs of an arm "
    f"collapsed, every seed is a thin line. Below, the medians in % of full communication. "
    f"{_WEIGHTED}",
    paths.NAME: "Weights of a 784-128-10 network on Fashion-MNIST under SGD, and their increments "
    "in the last epoch beside a normal distribution.",
    "thresholds": f"Thresholds by round, on a logarithmic axis: the median over seeds, and a shade "
    f"from the lowest to the highest; where runs of an arm collapsed, every seed is a thin line "
    f"instead. A run that diverged has τ ≤ 0 and leaves the axis. "
    f"{_WEIGHTED}",
    "bytes": f"Above, accuracy after {ROUNDS} rounds against upload: a small mark for every seed, "
    f"a large one for the medians. Arrows point to medians that lie below the axis. In the lower "
    f"panels, the upload until the median over seeds has {_TARGET} of the final accuracy of full "
    f"communication.",
}

HEAD = """\
# The paper, reproduced

*Communication-Efficient Federated Learning via Optimal Client Sampling* (Ribero, Vikalo, 2020), on
real data and over seeds; the paper has one run for each number. In short:
"""

COMMANDS = """\
```bash
taciturn paper all --out DIR             # everything; a stopped command goes on where it was
taciturn paper table main --quick        # minutes on a CPU, on data that need no download
taciturn paper page --out DIR            # this page, of what the folder has; runs nothing
```

This page is written by `taciturn paper page` from the JSON files beside its figures; all numbers,
and what is said of them, come from there. Tables and figures have the numbers that they have in the
paper, in the order in which they appear there.
"""

TERMS = f"""\
## Terms

- A client *speaks* when it uploads its update, and is *silent* when it uploads only its number of
  examples and its update's norm. *N* clients are asked in a round; each trains for *E* epochs in
  batches of *B*.
- A *stand-in* takes the place of a silent client's update. `ou` is the paper's estimator to the
  letter: θ_{{t+1}} = â θ_t + b̂, fitted to each weight's past. `ou constrained` holds â in [0, 1],
  which is what an Ornstein–Uhlenbeck process allows, and is Taciturn's default; `zero` is no step;
  `ignore` leaves the client out.
- *τ* is the threshold that a norm must exceed for its client to speak. `adaptive` sets it to mean −
  deviation of the last round's norms, weighted by examples as in the author's code, or `unweighted`
  as the paper's text reads.
- Under `random`, clients speak with the rate of the adaptive arm with the same stand-in and
  weighting: its mean over rounds and seeds.
- The *share* is what was uploaded, in % of everyone's update in float32; GiB are uplink only, and
  what the paper prints as "Gb".
- A run has *collapsed* when it ends more than {comparing.COLLAPSE:g} points of accuracy below full
  communication with the same seed. It has also collapsed when it ends no more than
  {_POINT} above a model that always gives the most frequent answer, and more than {_POINT} below
  full communication with the same seed. Where a file does not say how often that answer is
  right, the first rule stands alone.
"""

VERDICTS = f"""\
Differences are taken seed by seed: both arms have the same clients and batches. In the details
*numbers* is the mean difference, its 95 % interval in brackets (Student's t) and the number of
seeds. *Ahead* and *behind* mean that the interval lies on one side of zero, with a remark where it
also lies within ±{MARGIN:g} points of accuracy; *level* that it has zero in it and lies within
±{MARGIN:g} points (an equivalence test); *undecided* is the rest. Upload is *more* or *less*, and
thresholds and swings are *higher* or *lower*: these have no margin, and are never level, unless a
rule says so. Where a run of the comparison collapsed, a mean lies where no run is: then there are
the median difference, in how many seeds it is above and below zero, the p-value of the two-sided
sign test over these, and in how many seeds it is within the margin; ahead and behind mean
p ≤ {comparing.LEVEL:g}. The remark is made there if so many seeds are within the margin that the
same test says so.

A check says *yes* if the rule is met, *undecided* if its word is undecided, else *no*: *level* is a
no where the rule asks for ahead or behind. Where a claim has another rule, it is printed.

A claim *holds* when all its checks say yes, or one where the claim says that one is enough; it
holds *in part* when some do, and *does not hold* when none does and one says no; it is *undecided*
when no check says either. A check that was not run says nothing, but counts among the n.

Nothing is corrected for the number of comparisons. About 1 in 40 checks without any difference says
yes by chance; a claim with a single yes rests on little.
"""

NOTES_MAIN = """\
*Paper* is the printed number, the same beside both of our estimators and both weightings.
*Rejected* is the share of replies that were not finite and were left out, as happens once a model
diverges, over all rounds of a run; they are not in the upload. The paper's `zero` arms ran without
the clipping that its other arms had; here all arms are clipped alike.
"""

NOTES_DATA = """\
A row of Shakespeare is a sequence of 80 characters; the paper counts snippets, of which a long one
makes several. The totals that it prints for models are not all the sums of their layers.
"""

NOTES_COLLAPSES = """\
`author's sums` keeps the sums of raw weights that the author's code has, in float32, and the arms
of *float32* have matrix products in float32: where they collapse as often, rounding is not the
cause.
"""
