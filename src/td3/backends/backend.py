"""What an agent asks of the code that computes its layers, its optimizer steps and its gathers."""

from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Float64, Int
from torch import Tensor

LARGEST_GRADIENT = 1e18
"""Adam keeps squares of gradients, and float32 has none of larger ones; every backend has the same bound."""


NORM_EPSILON = 1e-5
"""Added to the variance in LayerNorm, as in PyTorch."""


class NonFinite(ArithmeticError):
    """A loss or a gradient that is NaN, infinite or too large, found before a step was taken along it."""


class Moments(NamedTuple):
    """The state of Adam: running means of the gradient and of its square, and each network's count of steps."""

    first: Float[Tensor, "*stack parameter"]
    second: Float[Tensor, "*stack parameter"]
    steps: Float[Tensor, "*stack"]


@runtime_checkable
class Backend(Protocol):
    """One way to compute an update. Chosen once per agent (`choose_backend`); PyTorch's own is the reference."""

    name: str
    repeats_inputs: bool
    """Whether inputs with a shorter stack than the weights are read again for the rest of it, without a copy."""
    slower_because: str | None
    """Why a faster backend is not in use, in words that follow "because"; None where this is the fastest."""

    def linear(
        self,
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        bias: Float[Tensor, "stack outputs"],
        activation: str | None,
        out: Float[Tensor, "stack rows outputs"],
    ) -> Tensor:
        """`out = activation(inputs @ weight + bias)` for each of the stack."""

    def linear_backward(
        self,
        gradient: Float[Tensor, "stack rows outputs"],
        inputs: Float[Tensor, "some rows inputs"],
        weight: Float[Tensor, "stack inputs outputs"],
        activation: str | None,
        weight_and_bias: tuple[Tensor, Tensor] | None,
        out: Float[Tensor, "stack rows inputs"] | None,
    ) -> Tensor:
        """From the gradient of a layer's outputs, before their activation, to that of its inputs.

        `activation` is the one that made the inputs. The parameters' gradients are written to `weight_and_bias`, the
        inputs' gradient to the memory of `out`; what is None is not computed.
        """

    def normalize_(
        self, values: Float[Tensor, "stack rows units"], activation: str, keep: bool
    ) -> tuple[Tensor, Tensor] | None:
        """LayerNorm without scale and shift (`NORM_EPSILON`), then the activation, of each row in place.

        Returns, with `keep`, what `normalize_backward` needs: the numbers before the activation, and the inverse of
        each row's standard deviation.
        """

    def normalize_backward(
        self,
        gradient: Float[Tensor, "stack rows units"],
        normalized: Float[Tensor, "stack rows units"],
        inverse_deviation: Float[Tensor, "stack rows 1"],
    ) -> Float[Tensor, "stack rows units"]:
        """From the gradient of the normalized numbers to that of the numbers before; the given one is overwritten."""

    def adam_(
        self,
        parameters: Float[Tensor, "*stack parameter"],
        gradient: Float[Tensor, "*stack parameter"],
        moments: Moments,
        learning_rate: Float[Tensor, ""],
        active: Int[Tensor, " member"],
    ) -> None:
        """One step of Adam (0.9, 0.999, 1e-8); a gradient is refused as in `check_gradient_`, and nothing changes."""

    def check_gradient_(self, gradient: Float[Tensor, "*stack parameter"], active: Int[Tensor, " member"]) -> None:
        """Refuse a gradient that is not finite or too large: by `NonFinite`, on a GPU by 0 in `active`."""

    def gather(
        self, rows: Float[Tensor, "member capacity row"], indices: Int[Tensor, "member batch"]
    ) -> Float[Tensor, "member batch row"]:
        """The rows at these indices, each member's from its own."""

    def indices_at(
        self, numbers: Int[Tensor, "member slot batch"], cursor: Int[Tensor, " member"], filled: Int[Tensor, ""]
    ) -> Int[Tensor, "member batch"]:
        """`numbers.flatten(0, 1)[cursor] % filled`, for numbers that are not negative."""

    def accumulate_(
        self,
        sums: Float64[Tensor, "4 member"],
        critic: Float[Tensor, " member"],
        mean_q: Float[Tensor, " member"],
        actor: Float[Tensor, " member"] | None,
    ) -> None:
        """Add critic losses, mean Q-values and, where they are given, actor losses and a count of them."""

    def set_threads(self, count: int) -> None:
        """Have so many CPU threads do the work that is asked for by this thread."""

    def get_threads(self) -> int:
        """How many CPU threads do the work that is asked for by this thread."""
