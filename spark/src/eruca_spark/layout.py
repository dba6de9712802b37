"""The layout of a lake: the columns that are directories, kept in the lake itself.

A lake is divided by topic and day. A new lake may also be divided by hour, and by the value of one
property. The choice cannot be changed later: readers expect the same directories everywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from eruca.exporting.errors import OptionError
from eruca_spark.lake_files import LakeFiles

LAYOUT_FILE: Final = "_lake.json"
DEFAULT_TARGET_MIB: Final = 256
_PROPERTY: Final = re.compile(r"property:([A-Za-z_][A-Za-z0-9_]{0,39})")
# A directory's name has at most 255 bytes; escaping makes three of one.
_VALUE_SIZE_MAX: Final = 64
_FORM: Final = "topic, then day or hour, then at most one property:NAME (letters, digits, _)"


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of a lake, and the size of files that its maintenance aims for."""

    by_hour: bool = False
    property_name: str | None = None
    target_file_mib: int = DEFAULT_TARGET_MIB

    @classmethod
    def parse(cls, text: str, target_file_mib: int = DEFAULT_TARGET_MIB) -> Layout:
        """Return the layout that ``--partition-by`` describes.

        Raises:
            OptionError: The text describes none.
        """
        topic, *times = (part.strip() for part in text.split(","))
        time, *properties = times or [""]
        names = [_PROPERTY.fullmatch(one) for one in properties]
        if topic != "topic" or time not in ("day", "hour") or len(names) > 1 or None in names:
            raise OptionError(f"partition-by: expected {_FORM}; found {text!r}")
        name = names[0][1] if names and names[0] else None
        return cls(time == "hour", name, target_file_mib)

    @property
    def text(self) -> str:
        """The form that ``--partition-by`` takes."""
        of_property = [f"property:{self.property_name}"] if self.property_name else []
        return ",".join(["topic", "hour" if self.by_hour else "day", *of_property])

    @property
    def added_columns(self) -> dict[str, str]:
        """The columns between day and batch, with Spark's types."""
        hour = {"hour": "INT"} if self.by_hour else {}
        return hour | ({f"property_{self.property_name}": "STRING"} if self.property_name else {})

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are directories, from the root on."""
        return ("topic", "dt", *self.added_columns, "batch")

    def pattern(self, batch: int) -> str:
        """Return the pattern of a batch's directories."""
        return "/".join([*(f"{name}=*" for name in self.columns[:-1]), f"batch={batch}"])

    def with_columns(self, rows: DataFrame, batch: int) -> DataFrame:
        """Add the columns to a batch's rows; the session's time zone must be UTC.

        A missing or empty property is null, as Hive has it, and so is a value that is too long for
        the name of a directory. The column ``properties`` has every value.
        """
        rows = rows.withColumn("dt", f.to_date("stored_at"))
        if self.by_hour:
            rows = rows.withColumn("hour", f.hour("stored_at"))
        if self.property_name:
            value = f.try_element_at("properties", f.lit(self.property_name))
            fits = f.octet_length(value) <= _VALUE_SIZE_MAX
            rows = rows.withColumn(f"property_{self.property_name}", f.when(fits, value))
        return rows.withColumn("batch", f.lit(batch))

    def to_json(self) -> str:
        """Return the stored form."""
        document = {"partition_by": self.text, "target_file_mib": self.target_file_mib}
        return json.dumps(document, indent=1) + "\n"


def stored_layout(files: LakeFiles) -> Layout | None:
    """Return the layout that a lake has; None for one without a file: it has the default.

    Raises:
        OptionError: The file is unreadable.
    """
    text = files.read(LAYOUT_FILE)
    if text is None:
        return None
    try:
        document = json.loads(text)
        return Layout.parse(str(document["partition_by"]), int(document["target_file_mib"]))
    except (ValueError, KeyError, TypeError, OptionError) as error:
        raise OptionError(f"unreadable {LAYOUT_FILE} of the lake: {error}") from error


def settled_layout(
    files: LakeFiles, partition_by: str | None, target_file_mib: int | None, *, is_new: bool
) -> Layout:
    """Return the layout to write with; a new lake keeps it from now on.

    Raises:
        OptionError: The lake has another one.
    """
    stored = stored_layout(files)
    has = stored or Layout()
    if not is_new or stored is not None:
        wanted = Layout.parse(partition_by or has.text).text
        if wanted != has.text:
            raise OptionError(
                f"partition-by: the lake is divided by {has.text}, not by {wanted};"
                " export into a new lake, or omit the option"
            )
        if target_file_mib not in (None, has.target_file_mib):
            raise OptionError(
                f"target-file-mib: the lake aims for {has.target_file_mib};"
                " give another size to `eruca-spark maintain`"
            )
        return has
    layout = Layout.parse(partition_by or has.text, target_file_mib or DEFAULT_TARGET_MIB)
    if layout != Layout():
        files.write(LAYOUT_FILE, layout.to_json())
    return layout
