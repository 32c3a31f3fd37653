"""What `streamdedup doctor` looks at: each check is a function that yields lines; `examine` runs them side by side.

The checks change nothing, join no group and fence nobody. A check that gets no answer, or may not see something, yields
a line of its own status: unknown. It is never `ok`.
"""
