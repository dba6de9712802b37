"""How to install what the command line needs and is not there.

Imports nothing, for it is read where next to nothing is installed.
"""

from typing import Final

INSTALLATION: Final = "in a copy of Eruca's repository: pip install './sdk[cli,arrow]'"
