"""What ncu counted for the tensor-core rungs, as tables for their chapters, from a record of scripts/bench."""

from records import markdown_table


def tensor_tables(record):
    """{title: lines}: a row a rung, with its products and what they had beside them. Nothing where nothing was counted."""
    rows = []
    for rung, kernels in record.get("counters", {}).items():
        for c in kernels.values():
            products = c.get("tensor_pipe", 0) - c.get("tensor_pipe_moves", 0)
            if not products:
                continue
            wavefronts, conflicts = c["shared_load_wavefronts"], c["shared_load_conflicts"]
            rows.append([rung[:2], f"{products / 1e6:.1f}", f"{c['tensor_active_percent']:.1f}%",
                         f"{c['instructions'] / products:.2f}", f"{wavefronts / products:.2f}",
                         f"{wavefronts / (wavefronts - conflicts):.2f}", f"{c['local_load_sectors']:.0f}",
                         f"{c['registers']:.0f}", f"{c['occupancy_percent']:.0f}%"])
    return {} if not rows else {"tensor cores": markdown_table(
        ["rung", "products, 10^6", "tensor cores at work", "instructions a product",
         "wavefronts of shared loads a product", "ways", "sectors of local memory", "registers", "occupancy"], rows)}
