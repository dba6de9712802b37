"""Say how to install a missing dependency of the command line.

Imports nothing, for it is read where next to nothing is installed.
"""

from typing import Final

INSTALLATION: Final = "in a copy of Eruca's repository: pip install './sdk[cli,arrow]'"
