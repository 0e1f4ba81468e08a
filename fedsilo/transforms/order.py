"""The transforms of a job, from its method outward: a broadcast passes them in this order, an update in reverse.

An exchange passes those outside of its owner: a round of training all of them, silos' scores those after the
evaluation, and the messages of a secure sum none.

Those of other packages come after all that needs a method's own tensors, so that methods, private state and parts of
models know nothing of them, and after the noise of training, so that all they are given is private already; and before
whatever writes, noises or masks what really leaves, of which they can take nothing back.
"""

from __future__ import annotations

from fedsilo.methods.method import Method
from fedsilo.transforms.best_model.declaration import BestModelTransform
from fedsilo.transforms.encoding.declaration import EncodingTransform
from fedsilo.transforms.evaluation.declaration import EvaluationTransform
from fedsilo.transforms.optimizer_state.declaration import OptimizerStateTransform
from fedsilo.transforms.parameters.declaration import ParametersTransform
from fedsilo.transforms.preprocessing.declaration import PreprocessingTransform
from fedsilo.transforms.robust_mean.declaration import RobustMeanTransform
from fedsilo.transforms.secure_sum.declaration import SecureSumTransform
from fedsilo.transforms.third_party.declaration import ThirdPartyTransform
from fedsilo.transforms.training_noise.declaration import TrainingNoiseTransform
from fedsilo.transforms.transform import Transform
from fedsilo.transforms.update_noise.declaration import UpdateNoiseTransform

ORDER: tuple[type[Transform], ...] = (
    RobustMeanTransform,
    BestModelTransform,
    EvaluationTransform,
    OptimizerStateTransform,
    ParametersTransform,
    PreprocessingTransform,
    TrainingNoiseTransform,
    ThirdPartyTransform,
    EncodingTransform,
    UpdateNoiseTransform,
    SecureSumTransform,
)


def transforms_of(method: Method) -> tuple[Transform, ...]:
    """The transforms that the method's job asks for."""
    return tuple(found for kind in ORDER if (found := kind.of(method)) is not None)
