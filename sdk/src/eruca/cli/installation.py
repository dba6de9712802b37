"""Explain how to install a missing dependency of the command line.

Imports nothing, because it runs when almost nothing is installed.
"""

from typing import Final

INSTALLATION: Final = "in a copy of Eruca's repository: pip install './sdk[cli,arrow]'"
