"""Stand-in for the lab's entry."""
import argparse
import importlib
import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
name = sys.argv[1]
module = importlib.import_module("lab." + name.replace("-", "_"))
parser = argparse.ArgumentParser(prog=f"lab {name}", description=module.__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
module.add_arguments(parser)
sys.exit(module.main(parser.parse_args(sys.argv[2:])))
