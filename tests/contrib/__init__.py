"""Tests of `streamdedup/contrib/`, module by module, and of crawls by Scrapy."""
