// What steps cost, counted as the profiler counts it: line by line, up to any step.

const METRICS = [
    "global_requests",
    "sectors",
    "ideal_sectors",
    "shared_requests",
    "wavefronts",
    "ideal_wavefronts",
    "barriers",
    "collectives",
    "mma",
    "ldmatrix",
    "cp_async",
    "atomics",
    "tma",
    "wgmma",
];
const METRIC = Object.fromEntries(METRICS.map((name, i) => [name, i]));

/// Of the words that one pass through the 32 banks has to deliver, the most in one bank.
function worstBank(words) {
    const ofBank = new Map();
    for (const word of words) {
        const bank = ((word % 32) + 32) % 32;
        if (!ofBank.has(bank))
            ofBank.set(bank, new Set());
        ofBank.get(bank).add(word);
    }
    return Math.max(1, ...[...ofBank.values()].map((different) => different.size));
}

/// The passes of one request: a wavefront serves 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16.
function wavefronts(pieces, bytes) {
    const wordsEach = bytes > 4 ? bytes / 4 : 1;
    const lanesEach = 32 / wordsEach;
    let needed = 0;
    let ideal = 0;
    for (let first = 0; first < 32; first += lanesEach) {
        const words = [];
        for (const {lane, address} of pieces) {
            if (lane >= first && lane < first + lanesEach) {
                for (let i = 0; i < wordsEach; ++i)
                    words.push(Math.floor(address / 4) + i);
            }
        }
        if (words.length > 0) {
            needed += worstBank(words);
            ++ideal;
        }
    }
    return {needed, ideal};
}

function sectorsOf(pieces) {
    return new Set(pieces.map(({address}) => Math.floor(address / 32))).size;
}

class Costs {
    constructor(trace) {
        this.trace = trace;
        this.metrics = METRICS;
        this.cache = new Map();
        this.width = trace.lines.length * METRICS.length;
        this.every = 2048;
        this.marks = [ new Int32Array(this.width) ];
        const sums = new Int32Array(this.width);
        this.extra = new Uint16Array(trace.count); // wavefronts beyond the ideal
        this.extraSectors = new Uint16Array(trace.count);
        for (let step = 0; step < trace.count; ++step) {
            const cost = this.add(step, sums);
            if (cost) {
                this.extra[step] = (cost.wavefronts ?? 0) - (cost.ideal_wavefronts ?? 0);
                this.extraSectors[step] = (cost.sectors ?? 0) - (cost.ideal_sectors ?? 0);
            }
            if ((step + 1) % this.every === 0)
                this.marks.push(sums.slice());
        }
    }

    /// Line by line, METRICS of each, when `step` is done.
    upTo(step) {
        const mark = Math.min(Math.floor((step + 1) / this.every), this.marks.length - 1);
        const sums = this.marks[mark].slice();
        for (let i = mark * this.every; i <= step; ++i)
            this.add(i, sums);
        return sums;
    }

    add(step, sums) {
        const line = this.trace.lineOf(step);
        const cost = this.of(step);
        if (line < 0 || !cost)
            return null;
        cost.places ??= Object.keys(cost).map((name) => [METRIC[name], cost[name]]);
        for (const [metric, count] of cost.places)
            sums[line * METRICS.length + metric] += count;
        return cost;
    }

    /// What one step costs. Steps that touch memory in the same way are counted once.
    of(step) {
        const trace = this.trace;
        if (trace.warp[step] === ENGINE)
            return null;
        const {operation} = trace.siteOf(step);
        if (operation.startsWith("__syncthreads"))
            return trace.endedBy[step] === step ? {barriers: 1} : null;
        if (operation === "__syncwarp" || operation === "collective")
            return {collectives: 1};
        if (operation === "mma" || operation === "wgmma")
            return {[operation] : 1};
        if (LOADING.has(operation) || STORING.has(operation))
            return {tma: 1};
        if (!trace.siteOf(step).bytes || operation === "semaphore_wait")
            return null;
        let key = (trace.site[step] * trace.patterns.length + trace.pattern[step]) * 128 +
                  (trace.base[step] % 128);
        if (trace.pattern2[step])
            key += `:${trace.pattern2[step]}:${trace.base2[step] % 32}`;
        if (!this.cache.has(key))
            this.cache.set(key, this.count(step));
        return this.cache.get(key);
    }

    count(step) {
        const {operation, space, bytes} = this.trace.siteOf(step);
        const pieces = (second) => {
            const found = [];
            this.trace.forPieces(step, (address, _, lane) => found.push({address, lane}), second);
            return found;
        };
        const global = (own) => ({
            global_requests: 1,
            sectors: sectorsOf(own),
            ideal_sectors: Math.ceil((own.length * bytes) / 32),
        });
        if (operation === "atomic")
            return {atomics: 1};
        if (space === "global")
            return global(pieces(false));
        if (operation === "ldmatrix") {
            let needed = 0;
            const own = pieces(false);
            for (let first = 0; first < 32; first += 8) {
                const rows =
                    own.slice(first, first + 8).map(({address}, lane) => ({address, lane}));
                needed += wavefronts(rows, 16).needed;
            }
            return {shared_requests: 1, wavefronts: needed, ideal_wavefronts: 4, ldmatrix: 1};
        }
        const {needed, ideal} = wavefronts(pieces(false), bytes);
        const cost = {shared_requests: 1, wavefronts: needed, ideal_wavefronts: ideal};
        if (operation === "cp.async") {
            cost.cp_async = 1;
            if (this.trace.pattern2[step])
                Object.assign(cost, global(pieces(true)));
        }
        return cost;
    }

    /// Sums over all lines.
    total(sums) {
        const all = Object.fromEntries(METRICS.map((name) => [name, 0]));
        for (let i = 0; i < sums.length; ++i)
            all[METRICS[i % METRICS.length]] += sums[i];
        return all;
    }
}
