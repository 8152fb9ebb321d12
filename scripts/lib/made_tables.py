"""All tables that are made from the records in docs/records, by the record's name."""

from functools import cache

from records import RECORDS, read_record
import bench_tables
import compare_tables
import cpu_tables
import experiment_tables
import gpu_tables

BENCH = {path.stem: bench_tables.bench_tables for kind in ("bench", "series", "memory")
         for path in sorted(RECORDS.glob(f"{kind}_*.json"))}
TABLES = {**cpu_tables.TABLES, **gpu_tables.TABLES, **compare_tables.TABLES,
          **experiment_tables.TABLES, **BENCH}


@cache
def tables_of(record):
    """{title: lines}. Raises ValueError if there is no such record."""
    if record not in TABLES:
        raise ValueError(f"there is no record {record}; there are {', '.join(TABLES)}")
    return TABLES[record](read_record(record))


def table_of(record, title):
    """Lines of one table. Raises ValueError if there is no such record, or no such table of it."""
    tables = tables_of(record)
    if title not in tables:
        raise ValueError(f"{record} has no table '{title}'; it has: {'; '.join(tables)}")
    return tables[title]
