"""`python -m bench NAME`: one measurement; `--help` lists them."""

import sys

from bench.entry import Tool, run

TOOLS = {
    "acceptance": Tool("Every figure of the filters beside paper and theory", "bench.acceptance"),
    "bombs": Tool(
        "How long the loop stands still for events that are bombs, of JSON and of headers",
        "bench.bombs",
        parses=False,
    ),
    "crawl": Tool("Crawls of local pages, with Scrapy's filter and with ours", "bench.crawl"),
    "default-kind": Tool("The kinds that could be the default, and windows", "bench.default_kind"),
    "explain": Tool("The verdict by snapshots of 100 M keys, and the search", "bench.explain"),
    "filters": Tool("Every kind beside other libraries; a quarter of an hour", "bench.filters"),
    "formats": Tool("Keys in each format, in seconds", "bench.formats", parses=False),
    "full": Tool("Restart, memory, latency, growth, peers; an hour or more", "bench.worker.full"),
    "hashes": Tool("The hashes on keys with a structure", "bench.hashes", parses=False),
    "lasting": Tool("Memory beside filters that grow, for an hour", "bench.worker.lasting"),
    "lists": Tool("Lists of 100 million addresses; with --exact, the store", "bench.lists"),
    "one-key": Tool("One key at a time, beside `set` and rbloom; minutes", "bench.one_key"),
    "pipe": Tool("`streamdedup pipe` beside huniq and awk; minutes", "bench.pipe"),
    "repartition": Tool(
        "The stages of source.repartition", "bench.worker.repartition", parses=False
    ),
    "urls": Tool("URLs and addresses, in seconds", "bench.urls", parses=False),
    "worker": Tool("The worker beside a plain copy and a loop by hand", "bench.worker"),
}

if __name__ == "__main__":
    sys.exit(run("bench", TOOLS))
