// Shared memory at any step: which step wrote each cell last, and what it wrote.

const CELL = 4; // bytes; a bank is that wide

class SharedMemory {
    constructor(trace) {
        this.trace = trace;
        this.cells = Math.ceil(trace.shared.bytes / CELL);
        this.writer = new Int32Array(this.cells).fill(-1); // of its last byte
        this.bytes = new Uint8Array(this.cells * CELL);
        this.written = new Uint8Array(this.cells * CELL);
        // Marks hold all of it, so that going back is no longer than going on; at most 48 MB of
        // them.
        const size = this.cells * (4 + 2 * CELL) + 1;
        this.every = Math.max(1024, Math.ceil((trace.count * size) / 48e6));
        this.marks = [ this.copy() ];
        this.at = -1;
        this.landings = new Map(); // step that ends works of cp.async or TMA: those
        for (const work of trace.works) {
            if (work.end >= 0 && BRINGING.has(work.kind)) {
                if (!this.landings.has(work.end))
                    this.landings.set(work.end, []);
                this.landings.get(work.end).push(work);
            }
        }
    }

    copy() {
        return {
            writer: this.writer.slice(),
            bytes: this.bytes.slice(),
            written: this.written.slice()
        };
    }

    /// Memory as it is when `step` is done.
    goTo(step) {
        let mark = Math.floor((step + 1) / this.every);
        if (step < this.at || mark * this.every > this.at + 1) {
            mark = Math.min(mark, this.marks.length - 1);
            if (step < this.at || mark * this.every > this.at + 1) {
                this.writer.set(this.marks[mark].writer);
                this.bytes.set(this.marks[mark].bytes);
                this.written.set(this.marks[mark].written);
                this.at = mark * this.every - 1;
            }
        }
        while (this.at < step) {
            ++this.at;
            this.apply(this.at);
            const next = (this.at + 1) / this.every;
            if (next === this.marks.length)
                this.marks.push(this.copy());
        }
    }

    apply(step) {
        const operation = this.trace.operation(step);
        if ((operation === "store" || operation === "atomic") &&
            this.trace.siteOf(step).space === "shared") {
            this.put(step, step);
        }
        for (const work of this.landings.get(step) ?? []) {
            for (const start of work.steps)
                this.put(start, start);
        }
    }

    put(step, writer) {
        const data = this.trace.dataAt[step];
        this.trace.forPieces(step, (address, bytes, _, offset) => {
            for (let i = 0; i < bytes; ++i) {
                const at = address + i;
                if (at < 0 || at >= this.bytes.length)
                    continue;
                this.bytes[at] = this.trace.data[data + offset + i];
                this.written[at] = 1;
                this.writer[Math.floor(at / CELL)] = writer;
            }
        });
    }

    /// Cells that a copy under way will overwrite, or a product under way reads: [{ work, kind }].
    underWay(step) {
        return this.trace.works.filter(
            (work) =>
                work.steps.length > 0 && work.steps[0] <= step && (work.end < 0 || work.end > step),
        );
    }

    /// The next step after `step` that reads (or writes) this cell; -1 when there is none.
    nextUse(cell, step) {
        const begin = cell * CELL;
        for (let i = step + 1; i < this.trace.count; ++i) {
            const {space, operation} = this.trace.siteOf(i);
            if (space !== "shared" && operation !== "wgmma")
                continue;
            const hit = this.trace.sharedPieces(i).some(
                ({address, bytes}) => address < begin + CELL && begin < address + bytes);
            if (hit)
                return i;
        }
        return -1;
    }
}

const BRINGING = new Set([ "cp.async", "tma_load", "bulk_load" ]);
