"""Privacy amplification by shuffling: which central (ε, δ) the reports of N users have who each keep a local ε.

On the host and in double precision: nothing here is traced, and every bound counts its own rounding in.
"""

from rrjax.privacy.shuffling.accounting import central_delta, central_epsilon, leaked_epsilon, local_epsilon

__all__ = ["central_delta", "central_epsilon", "leaked_epsilon", "local_epsilon"]
