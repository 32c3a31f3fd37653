"""One entry for many tools: `python -m PACKAGE NAME [ARGUMENT ...]` runs a module, as `python -m MODULE` does."""

import argparse
import runpy
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """The module that runs, and what it is for. `parses`: it has a parser of arguments, and so a --help of its own."""

    about: str
    module: str
    parses: bool = True


def run(package: str, tools: Mapping[str, Tool], arguments: Sequence[str] | None = None) -> int:
    """Run the tool that the command line names; return its status."""
    prog = f"python -m {package}"
    width = max(map(len, tools))
    listed = "\n".join(f"  {name:{width}}  {tool.about}" for name, tool in tools.items())
    parser = argparse.ArgumentParser(
        prog=prog,
        description=f"tools:\n{listed}",
        epilog=f"`{prog} NAME --help` has the arguments of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=tools, metavar="NAME", help="a tool")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the tool takes")
    asked = parser.parse_args(arguments)
    tool = tools[asked.name]
    if not tool.parses:
        about = f"{tool.about}. It takes no arguments."
        argparse.ArgumentParser(prog=f"{prog} {asked.name}", description=about).parse_args(
            asked.arguments
        )
    sys.argv[1:] = asked.arguments
    try:
        runpy.run_module(tool.module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        return ended.code or 0
    return 0


def add_names(parser: argparse.ArgumentParser, metavar: str, known: Collection[str]) -> None:
    """Let a tool take `names`: any number of those that are `known`."""

    def checked(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name}: there are {', '.join(known)}")
        return name

    parser.add_argument("names", nargs="*", type=checked, metavar=metavar, help=", ".join(known))
