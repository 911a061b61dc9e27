"""python -m tests.model [DECISION=no ...]: search one design, print the shortest counterexamples.

python -m tests.model commits_before_order=no
"""

from __future__ import annotations

import sys

from tests.model.protocol import Design
from tests.model.search import search

choices = dict(word.split("=") for word in sys.argv[1:])
print(search(Design(**{name: word != "no" for name, word in choices.items()})))
