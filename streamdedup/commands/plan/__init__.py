"""`streamdedup plan`: what each kind of filter would cost for a job, which one to pick, and why.

Sizes and errors follow from theorems, so no filter of the planned size is allocated. Speeds are measured.
"""
