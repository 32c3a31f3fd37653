"""The life of one partition: fence, resume, fold, decide, commit, admit. `lifecycle` opens with the theory of it."""
