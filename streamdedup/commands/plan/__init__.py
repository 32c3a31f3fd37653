"""`streamdedup plan`: what each kind of filter would cost for a job, which one to pick, and why.

Sizes and errors follow from the theorems, so that nothing of the planned size is allocated; speeds are measured.
"""
