"""Models: the paper's, exact to the weight, and the small ones of the embedded tasks.

Every array leaf of a model is a weight. Models are called on a batch and compute in the precision
of their weights; `key` is None when they are tested. Initial values are those of Keras, which the
paper's authors used, so that results compare.
"""

from taciturn.models.lstm import CharLSTM
from taciturn.models.networks import MLP, EmnistCNN, SmallCNN

__all__ = ["MLP", "CharLSTM", "EmnistCNN", "SmallCNN"]
