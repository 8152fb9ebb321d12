// A step in words.

class Words {
    constructor(trace, names, costs) { Object.assign(this, {trace, names, costs}); }

    who(step) {
        const lanes = this.trace.lanes(step);
        const count = popcount(lanes);
        const warp = `Warp ${this.trace.warp[step]}`;
        if (count === 32)
            return warp;
        if (count === 1)
            return `${warp}, lane ${31 - Math.clz32(lanes)},`;
        return `${warp}, ${count} of its lanes,`;
    }

    /// Where pieces lie: "K[0][0] to K[31][3]".
    range(pieces, name) {
        if (pieces.length === 0)
            return "nothing";
        const low = pieces.reduce((a, b) => (b.address < a.address ? b : a));
        const high = pieces.reduce((a, b) => (b.address + b.bytes > a.address + a.bytes ? b : a));
        const [from, to] = [ name(low.address), name(high.address + high.bytes - 1) ];
        return from === to ? from : `${from} to ${to}`;
    }

    shared(pieces) {
        const tiles =
            [...new Set(pieces.map(({address}) => this.names.tile(address) ?? "shared memory")) ];
        if (pieces.length > 32 || tiles.length !== 1)
            return tiles.join(", ");
        return this.corners(pieces) ?? this.range(pieces, (address) => this.names.cell(address));
    }

    /// Of a tile with a swizzle, whose rows and columns do not lie as they are counted.
    corners(pieces) {
        const rows = [];
        const columns = [];
        const variable = this.names.variableAt(pieces[0].address);
        if (!variable?.swizzle)
            return null;
        for (const {address, bytes} of pieces) {
            const first = this.names.element(address);
            const last = this.names.element(address + bytes - 1);
            const all = first.row !== last.row;
            rows.push(first.row, last.row);
            columns.push(all ? 0 : first.column, all ? variable.columns - 1 : last.column);
        }
        const corner = (of) => `${variable.name}[${of(...rows)}][${of(...columns)}]`;
        return `${corner(Math.min)} to ${corner(Math.max)}`;
    }

    global(pieces) {
        const {buffers} = this.trace;
        const names = [...new Set(
            pieces.map(({address}) => buffers[this.trace.bufferAt(address)]?.name ?? "memory")) ];
        return names.join(", ");
    }

    withoutSwizzle(step, turns) {
        const {trace, names} = this;
        const pieces = trace.sharedPieces(step);
        if (!pieces.every(({address}) => names.variableAt(address)?.swizzle))
            return "";
        const plain = pieces.map(
            ({address, lane}) => ({address: names.unswizzled(address), lane}));
        const {needed} = wavefronts(plain, trace.siteOf(step).bytes);
        return needed > turns ? ` Without the swizzle it would take ${needed}.` : "";
    }

    turns(step) {
        const cost = this.costs.of(step) ?? {};
        if (cost.wavefronts) {
            const {wavefronts: turns, ideal_wavefronts: ideal} = cost;
            const all = ` It takes ${plural(turns, "turn")}`;
            return turns > ideal
                ? `${all}, because lanes want different words of one bank; ${ideal} would do.`
                : `${all}: no two lanes want different words of one bank at once.${
                      this.withoutSwizzle(step, turns)}`;
        }
        if (cost.sectors) {
            const {sectors, ideal_sectors: ideal} = cost;
            const more = sectors > ideal ? `; side by side, the bytes would fill ${ideal}` : "";
            return ` It moves ${plural(sectors, "sector")} of 32 bytes${more}.`;
        }
        return "";
    }

    of(step) {
        const facts = this.facts(step);
        const sentence = SENTENCES[facts.operation] ?? ((of) => `${of.who}: ${of.operation}.`);
        return sentence(facts) + this.turns(step);
    }

    /// What sentences are made of.
    facts(step) {
        const {trace} = this;
        const site = trace.siteOf(step);
        const shared = this.shared(trace.sharedPieces(step));
        const number = trace.number[step];
        if (trace.warp[step] === ENGINE) {
            return {operation: site.operation, warp: trace.works[number].warp, shared};
        }
        const bytes = LOADING.has(site.operation) ? trace.bytesOf(step) : trace.base2[step];
        const global = this.global(trace.globalPieces(step));
        return {
            operation: site.operation,
            who: this.who(step),
            line: this.line(site),
            shared,
            global,
            where: site.space === "shared" ? shared : global,
            each: `${site.bytes} bytes a lane`,
            number,
            groups: `${plural(number, "group")}`,
            are: number === 1 ? "is" : "are",
            bytes: plural(bytes, "byte"),
            barrier: site.barrier === undefined ? "" : this.names.barrier(site.barrier),
        };
    }

    /// "line 121", with the file if it is another one than the kernel's.
    line({file, line}) {
        const name = this.trace.files[file] ?? "";
        return name.startsWith("common/") ? `${name.replace(/.*[/]/, "")}:${line}` : `line ${line}`;
    }

    /// What a warp does or waits for at a step, in a few words.
    state(warp, at) {
        const {trace} = this;
        const place = trace.lastOfWarp(warp, at);
        if (place < 0)
            return {state: "idle", text: "has not begun"};
        const step = trace.ofWarp[warp][place];
        const site = trace.siteOf(step);
        if (trace.isWait(step) && trace.waitEnd(step) > at) {
            const what =
                site.barrier === undefined ? site.operation : this.names.barrier(site.barrier);
            return {state: "waiting", text: `${this.line(site)}: waits for ${what}`, step};
        }
        if (place === trace.ofWarp[warp].length - 1 && !trace.fault && step < at)
            return {state: "done", text: "has left the kernel", step};
        return {
            state: "running",
            text: `${this.line(site)}: ${site.operation === "line" ? "computes" : site.operation}`,
            step
        };
    }
}

const SENTENCES = {
    land: (of) => `The copy engine: what warp ${of.warp} asked for has landed in ${of.shared}.`,
    line: (of) => `${of.who} comes to ${of.line}.`,
    load: (of) => `${of.who} reads ${of.each} of ${of.where}.`,
    store: (of) => `${of.who} writes ${of.each} to ${of.where}.`,
    atomic: (of) => `${of.who} updates ${of.where} atomically.`,
    "cp.async": (of) => `${of.who} starts a copy (cp.async), ${of.each}, to ${of.shared}.`,
    ldmatrix: (of) => `${of.who} reads four 8 x 8 matrices of ${of.shared} (ldmatrix).`,
    mma: (of) => `${of.who} multiplies fragments on its tensor core (mma m16n8k16).`,
    wgmma: (of) => `${of.who} asks, with its warpgroup, for a product of ${of.shared} (wgmma).`,
    collective: (of) => `${of.who}: its lanes exchange values (a shuffle or a vote).`,
    semaphore_wait: (of) =>
        `${of.who} waits for a number in ${of.global}, which blocks count up in their turn.`,
    __syncwarp: (of) => `${of.who} meets: __syncwarp.`,
    __syncthreads: (of) => `${of.who} comes to the block's barrier.`,
    __syncthreads_or: (of) => `${of.who} comes to the block's barrier (__syncthreads_or).`,
    mbarrier_init: (of) => `${of.who} makes ${of.barrier}: ${of.number} arrivals end a phase.`,
    mbarrier_wait: (of) =>
        of.number < 0
            ? `${of.who} waits at ${of.barrier}. The phase before the first counts as over.`
            : `${of.who} waits at ${of.barrier} for the end of its phase ${of.number}.`,
    mbarrier_arrive: (of) => `${of.who} arrives at ${of.barrier}, in phase ${of.number}.`,
    mbarrier_expect_tx: (of) =>
        `${of.who} arrives at ${of.barrier}, in phase ${of.number}; ${of.bytes} will come.`,
    cp_async_mbarrier_arrive: (of) =>
        `${of.who} will arrive at ${of.barrier} once its copies have landed.`,
    named_barrier_sync: (of) => `${of.who} comes to ${of.barrier} and waits there.`,
    named_barrier_arrive: (of) => `${of.who} arrives at ${of.barrier} and goes on.`,
    tma_load: (of) =>
        `${of.who} asks for ${of.bytes} of ${of.global}, into ${of.shared} (tma_load).`,
    bulk_load: (of) => `${of.who} asks for ${of.bytes} of ${of.global}, into ${of.shared}.`,
    tma_store: (of) => `${of.who} has the copy engine store ${of.shared} to ${of.global}.`,
    bulk_store: (of) => `${of.who} has the copy engine store ${of.shared} to ${of.global}.`,
    bulk_reduce_add: (of) => `${of.who} has the copy engine add ${of.shared} to ${of.global}.`,
    cp_async_commit: (of) => `${of.who} closes a group of copies.`,
    cp_async_wait: (of) =>
        `${of.who} waits until at most ${of.groups} of its copies ${of.are} under way.`,
    wgmma_commit: (of) => `${of.who} closes a group of products.`,
    wgmma_wait: (of) =>
        `${of.who} waits until at most ${of.groups} of its products ${of.are} under way.`,
    bulk_commit: (of) => `${of.who} closes a group of stores.`,
    bulk_wait: (of) => `${of.who} waits until its stores are complete.`,
    bulk_wait_read: (of) => `${of.who} waits until its stores have read shared memory.`,
    give_registers: (of) => `${of.who} gives registers away: it keeps ${of.number} a thread.`,
    take_registers: (of) => `${of.who} takes registers: it has ${of.number} a thread.`,
};
