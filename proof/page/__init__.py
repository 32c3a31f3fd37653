"""The worker's page in a real browser: each state that it may show, by every element, light and dark.

`make test-page` runs this alone. It needs chromium, which `.ci/tools` installs; without it, the tests are skipped.
"""
