"""The pictures of docs/figures that show an idea or a layout: functions that return SVG."""

from lab.pictures import decoding, memory, ranks, tensor_cores, threads, time

PICTURES = {
    f"{function.__name__}.svg": function
    for function in (
        threads.grid_block_warp,
        threads.xor_shuffle,
        threads.banks,
        memory.memory_pyramid,
        memory.latency_hiding,
        memory.coalescing,
        memory.loop_orders,
        memory.tile_sizes,
        memory.outer_product,
        memory.micro_tile,
        memory.transposed_square,
        memory.three_roofs,
        memory.traffic_of_tiles,
        memory.online_softmax,
        tensor_cores.fragments,
        tensor_cores.ldmatrix,
        tensor_cores.swizzle,
        tensor_cores.warp_tiles,
        tensor_cores.descriptors,
        tensor_cores.five_products,
        tensor_cores.exponents,
        time.slices,
        time.pipeline,
        time.block_order,
        time.issue_slots,
        time.window,
        time.late_vote,
        time.drift,
        time.ring,
        time.overlap,
        time.late_dq,
        time.timeline,
        decoding.packed_rows,
        decoding.splits,
        decoding.pages,
        decoding.shares,
        ranks.ring_of_ranks,
        ranks.zigzag,
    )
}
