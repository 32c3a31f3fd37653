"""How many false positives an error rate explains: the upper tail of the Poisson distribution.

Above its mean it bounds the tail of the binomial distribution (Anderson and Samuels, 1967). So whatever the keys are,
more than `most_explained` come by chance with a probability below `BEYOND_CHANCE`.
"""

import math

BEYOND_CHANCE = 1e-6


def most_explained(mean: float) -> int:
    """Return the least k such that more than k events, with `mean` expected, have a probability below BEYOND_CHANCE."""
    low, high = -1, math.ceil(mean + 10 * math.sqrt(mean)) + 50
    while high - low > 1:
        middle = (low + high) // 2
        if more_than(middle, mean) < BEYOND_CHANCE:
            high = middle
        else:
            low = middle
    return high


def more_than(k: int, mean: float) -> float:
    """Return an upper bound of the probability of more than `k` events, with `mean` expected; 1.0 if k is below it."""
    if k == 0:
        return min(1.0, mean)
    if k < mean:
        return 1.0
    if mean <= 0:
        return 0.0
    i = k + 1
    term = math.exp(i * math.log(mean) - mean - math.lgamma(i + 1))
    total = 0.0
    while term > total * 1e-12:
        total += term
        i += 1
        term *= mean / i
    return total
