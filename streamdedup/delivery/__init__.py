"""The life of one partition: fence, resume, fold, decide, commit, admit. `lifecycle` has the states."""
