"""The page that scripts/bench leaves in the build folder: its tables and pictures, and the record they are made of."""

import bench_svg
import series_svg
from bench_tables import bench_tables
from records import write_json


def pictures(record):
    """{file name: (what it shows, function that draws it)} of those that the record has the numbers for."""
    kind = record.get("kind", "bench")
    if kind == "series":
        return {"time.svg": ("Time against N", series_svg.time_svg)}
    if kind == "memory":
        return {"memory.svg": ("Memory against N", series_svg.memory_svg)}
    found = {"ladder.svg": ("The ladder", bench_svg.ladder_svg)}
    if record.get("counters"):
        found["traffic.svg"] = ("Traffic", bench_svg.traffic_of_rungs_svg)
        found["conflicts.svg"] = ("Bank conflicts", bench_svg.conflicts_svg)
        if record["ceilings"].get("copy_bytes_per_s"):
            found["roofline.svg"] = ("Roofline", bench_svg.roofline_svg)
    return found


def machine(record):
    gpu = f"{record['gpu']} (CUDA {record['cuda']}, driver {record['driver']}) and " if record.get("gpu") else ""
    return f"{gpu}{record['cores']} cores of {record['processor']}, {record['date']}, commit {record['commit']}."


def write_page(folder, kind, record):
    """Writes KIND.md, KIND.json and the pictures into the folder; returns the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{kind}.json", record)
    parts = [f"# What `{record['command']}` measured\n", machine(record) + "\n"]
    if record["quick"]:
        parts.append("With `--quick`: smaller problems than those of the README; compare nothing with it.\n")
    for name, (title, draw) in pictures(record).items():
        (folder / name).write_text(draw(record), encoding="utf-8")
        parts.append(f"![{title}]({name})\n")
    for title, lines in bench_tables(record).items():
        if title != "ladder":  # README's form of the first table
            parts.append(f"## {title[0].upper() + title[1:]}\n")
            parts.append("\n".join(lines) + "\n")
    page = folder / f"{kind}.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page
