"""The bias of the likeliest coefficients, to the order of 1/N.

With V the inverse information and l a user's log-likelihood, Cox and Snell's bias of coefficient r is
Σ_s V_rs·Σ_jk V_jk·(½·E[l_sjk] + E[l_sj·l_k]). The expectations are taken over the users that there are. Coefficients
act through the logits η = Bᵀx alone, so with C = (x ⊗ 1)ᵀ V (x ⊗ 1) of each user, k × k, all comes down to a slope of
⟨J(η), C⟩, J the user's observed information on the logits, and to J·C·g, g their score: nothing with three indices.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rrjax.mechanisms.rows import LogRows
from rrjax.models.logistic import Data, curvatures, posteriors
from rrjax.numerics.newton import added_up, blocks_of


def bias(coefficients: Float[Array, "D k"], data: Data, inverse: Float[Array, "P P"]) -> Float[Array, "D k"]:
    """How much farther from the truth than they should the likeliest coefficients are expected to be.

    References:
        Cox and Snell, "A general definition of residuals", 1968; Firth, "Bias reduction of maximum likelihood
        estimates", 1993.
    """
    size, width = coefficients.shape
    split = inverse.reshape(size, width, size, width)

    def of_block(block):
        spread = jnp.einsum("nd,diej,ne->nij", block.covariates, split, block.covariates)

        def traced(logits, rows, spread):
            observed, _ = curvatures(_seen(logits, rows))
            return jnp.sum(observed[0] * spread)

        logits = block.covariates @ coefficients
        bend = jax.vmap(jax.grad(traced))(logits, block.rows, spread)
        found = posteriors(coefficients, block.covariates, block.rows)
        observed, _ = curvatures(found)
        turned = jnp.einsum("nij,njk,nk->ni", observed, spread, found.moved[:, 1:])
        return jnp.einsum("n,nd,ni->di", block.weights, block.covariates, -bend / 2 - turned), ()

    total, _ = added_up(of_block, blocks_of(data), coefficients)
    return (inverse @ total.ravel()).reshape(size, width)


def _seen(logits, rows):
    """One user, as a batch of one, at logits `[k]` that are coefficients of a single covariate."""
    one = jnp.ones((1, 1), logits.dtype)
    return posteriors(logits[None], one, LogRows(*(leaf[None] for leaf in rows)))
