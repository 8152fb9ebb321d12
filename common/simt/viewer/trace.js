// A recording as the page holds it (docs/watch_format.md), and what can be asked of its steps.

const ENGINE = -1; // the copy engine, in place of a warp

function fromBase64(text) {
    const chars = atob(text);
    const bytes = new Uint8Array(chars.length);
    for (let i = 0; i < bytes.length; ++i)
        bytes[i] = chars.charCodeAt(i);
    return bytes;
}

async function unpack(text) {
    const stream =
        new Blob([ fromBase64(text) ]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
}

class Trace {
    constructor(document) {
        Object.assign(this, document); // run, sites, patterns, buffers, barriers, works, files, ..
        const columns = document.steps;
        this.count = columns.warp.length;
        this.warp = Int8Array.from(columns.warp);
        this.site = Uint16Array.from(columns.site);
        this.pattern = Uint16Array.from(columns.pattern);
        this.pattern2 = Uint16Array.from(columns.pattern2);
        this.number = Int32Array.from(columns.number);
        this.endedBy = Int32Array.from(columns.ended_by);
        this.base = new Float64Array(this.count);
        this.base2 = new Float64Array(this.count);
        this.data = fromBase64(columns.data);
        this.threads = this.run.block.reduce((x, y) => x * y);
        this.warps = Math.ceil(this.threads / 32);
        this.addUp(columns);
        this.findData();
        this.splitByWarp();
        this.findLines();
    }

    /// A column of addresses holds the distance from the one before of the same warp and site.
    addUp(columns) {
        const before = new Float64Array(this.sites.length * 32);
        const before2 = new Float64Array(this.sites.length * 32);
        for (let i = 0; i < this.count; ++i) {
            if (this.warp[i] === ENGINE)
                continue;
            const own = this.site[i] * 32 + this.warp[i];
            this.base[i] = before[own] += columns.base[i];
            this.base2[i] = before2[own] += columns.base2[i];
        }
    }

    /// Where each step's own bytes begin: what it writes to shared memory, in the order of the
    /// steps.
    findData() {
        this.dataAt = new Int32Array(this.count);
        const writes =
            this.sites.map(({operation, space}) => space === "shared" && (WRITING.has(operation) ||
                                                                          LOADING.has(operation)));
        let at = 0;
        for (let i = 0; i < this.count; ++i) {
            this.dataAt[i] = at;
            if (writes[this.site[i]] && this.warp[i] !== ENGINE)
                at += this.bytesOf(i);
        }
    }

    splitByWarp() {
        const lists = Array.from({length: this.warps}, () => []);
        for (let i = 0; i < this.count; ++i) {
            if (this.warp[i] !== ENGINE)
                lists[this.warp[i]].push(i);
        }
        this.ofWarp = lists.map((list) => Int32Array.from(list));
    }

    /// Every line that the run comes to, with a number of its own.
    findLines() {
        const known = new Map();
        this.lines = [];
        this.lineOfSite = this.sites.map(({file, line}) => {
            const key = file + ":" + line;
            if (!known.has(key)) {
                known.set(key, this.lines.length);
                this.lines.push({file, line});
            }
            return known.get(key);
        });
        this.lineNumber = (file, line) => known.get(file + ":" + line) ?? -1;
    }

    siteOf(step) {
        return this.warp[step] === ENGINE ? {operation: "land"} : this.sites[this.site[step]];
    }
    operation(step) { return this.siteOf(step).operation; }
    lanes(step) { return this.patterns[this.pattern[step]].lanes >>> 0; }
    lineOf(step) { return this.warp[step] === ENGINE ? -1 : this.lineOfSite[this.site[step]]; }

    /// How many bytes a step touches.
    bytesOf(step) {
        const {bytes} = this.siteOf(step);
        const {lanes, runs} = this.patterns[this.pattern[step]];
        return bytes ? popcount(lanes) * bytes
                     : (runs ?? []).reduce((sum, x, i) => sum + (i % 2 ? x : 0), 0);
    }

    /// Calls use(address, bytes, lane, offset of its data) for each piece that a step touches; a
    /// piece of the engine has lane -1.
    forPieces(step, use, second = false) {
        const pattern = this.patterns[second ? this.pattern2[step] : this.pattern[step]];
        const base = second ? this.base2[step] : this.base[step];
        if (pattern.runs) {
            let data = 0;
            for (let i = 0; i < pattern.runs.length; i += 2) {
                use(base + pattern.runs[i], pattern.runs[i + 1], -1, data);
                data += pattern.runs[i + 1];
            }
        } else if (pattern.offsets) {
            const bytes = this.siteOf(step).bytes ?? 0;
            let place = 0;
            for (let lane = 0; lane < 32; ++lane) {
                if ((pattern.lanes >>> lane) & 1) {
                    use(base + pattern.offsets[place], bytes, lane, place * bytes);
                    ++place;
                }
            }
        }
    }

    /// The pieces of shared memory that a step reads or writes: [{ address, bytes, lane, kind }].
    sharedPieces(step) {
        const {operation, space} = this.siteOf(step);
        const pieces = [];
        if (this.warp[step] === ENGINE) {
            const work = this.works[this.number[step]];
            for (const start of work.steps) {
                this.forPieces(start, (address, bytes, lane) =>
                                          pieces.push({address, bytes, lane, kind: "write"}));
            }
        } else if (operation === "wgmma") {
            for (const second of [false, true]) {
                const kind = second ? "read B" : "read A";
                this.forPieces(step,
                               (address, bytes) => pieces.push({address, bytes, lane: -1, kind}),
                               second);
            }
        } else if (space === "shared") {
            const kind = WRITING.has(operation)                               ? "write"
                         : LOADING.has(operation) || operation === "cp.async" ? "asked"
                                                                              : "read";
            this.forPieces(step,
                           (address, bytes, lane) => pieces.push({address, bytes, lane, kind}));
        }
        return pieces;
    }

    /// The pieces of global memory.
    globalPieces(step) {
        const {operation, space} = this.siteOf(step);
        const pieces = [];
        if (this.warp[step] === ENGINE || operation === "wgmma")
            return pieces;
        const second = space === "shared";
        const kind = operation === "store" || STORING.has(operation) ? "write" : "read";
        if (space === "global" || this.pattern2[step]) {
            this.forPieces(
                step, (address, bytes, lane) => pieces.push({address, bytes, lane, kind}), second);
        }
        return pieces;
    }

    /// That of the fault, or what this block did of a race with another one.
    faultStep() { return this.fault?.where.step ?? this.fault?.other?.step; }

    bufferAt(address) {
        return this.buffers.findIndex(({at, bytes}) => address >= at && address < at + bytes);
    }

    /// The last step of a warp up to `at`, as a place in its list; -1: it has not begun.
    lastOfWarp(warp, at) {
        const list = this.ofWarp[warp];
        let low = 0;
        let high = list.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (list[middle] <= at)
                low = middle + 1;
            else
                high = middle;
        }
        return low - 1;
    }

    /// Whether a step is one at which its warp may have to wait.
    isWait(step) { return this.warp[step] !== ENGINE && WAITING.has(this.operation(step)); }
    /// Until which step a wait lasts: its own number if it lasts no time, Infinity if nothing ends
    /// it.
    waitEnd(step) {
        const end = this.endedBy[step];
        if (end >= 0)
            return Math.max(end, step);
        return this.operation(step) === "mbarrier_wait" && this.number[step] < 0 ? step : Infinity;
    }
}

const WRITING = new Set([ "store", "atomic", "cp.async" ]);
const LOADING = new Set([ "tma_load", "bulk_load" ]);
const STORING = new Set([ "tma_store", "bulk_store", "bulk_reduce_add" ]);
const WAITING = new Set([
    "__syncthreads",
    "__syncthreads_or",
    "named_barrier_sync",
    "mbarrier_wait",
    "wgmma",
]);

function popcount(bits) {
    let count = 0;
    for (; bits; bits &= bits - 1)
        ++count;
    return count;
}
