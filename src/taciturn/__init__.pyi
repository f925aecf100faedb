# The public names, each with its module: type checkers read this, and `__init__.py` imports from
# there what is used.

from taciturn.core.codecs import Codec as Codec
from taciturn.core.codecs import Form as Form
from taciturn.core.codecs import bfloat16 as bfloat16
from taciturn.core.codecs import eden as eden
from taciturn.core.codecs import float16 as float16
from taciturn.core.codecs import float32 as float32
from taciturn.core.codecs import peaks as peaks
from taciturn.core.codecs import quantize as quantize
from taciturn.core.codecs import sparse_ternary as sparse_ternary
from taciturn.core.codecs import top_k as top_k
from taciturn.core.policy import Policy as Policy
from taciturn.core.policy import budget as budget
from taciturn.core.policy import parse as parse
from taciturn.core.policy import register as register
from taciturn.core.rules import ClientStats as ClientStats
from taciturn.core.rules import Rule as Rule
from taciturn.core.rules import adaptive as adaptive
from taciturn.core.rules import fixed as fixed
from taciturn.core.rules import full as full
from taciturn.core.rules import optimal as optimal
from taciturn.core.rules import random as random
from taciturn.core.standins import StandIn as StandIn
from taciturn.core.standins import ignore as ignore
from taciturn.core.standins import last as last
from taciturn.core.standins import ou as ou
from taciturn.core.standins import own as own
from taciturn.core.standins import zero as zero
from taciturn.errors import TaciturnError as TaciturnError
from taciturn.sim import History as History
from taciturn.sim import as_model as as_model
from taciturn.sim import compare as compare
from taciturn.sim import evaluate as evaluate
from taciturn.sim import prepare as prepare
from taciturn.sim import simulate as simulate
from taciturn.studies import load_model as load_model
from taciturn.tasks import Generated as Generated
from taciturn.tasks import Stored as Stored
from taciturn.tasks import Task as Task
from taciturn.tasks import classification as classification
from taciturn.tasks import load as load
from taciturn.tasks import regression as regression
from taciturn.tasks.files import table as table

__version__: str
__all__: list[str]
