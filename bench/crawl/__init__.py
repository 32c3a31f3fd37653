"""A crawl of a local site by Scrapy, with its own duplicate filter and with ours."""
