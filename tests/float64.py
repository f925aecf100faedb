"""JAX with float64, which has another place before JAX 0.8."""

try:
    from jax import enable_x64
except ImportError:
    from jax.experimental import enable_x64

__all__ = ["enable_x64"]
