// Tensors in global memory: what this block has read and written of each, and the current access.

const STRIP = 64; // rows that stand below one another; the next ones stand beside them

class TensorsView {
    constructor(player) {
        this.player = player;
        this.root = byId("tensors");
        this.pictures = player.trace.buffers.map((buffer) => this.picture(buffer));
        const keys = [ [ "written", "orange" ], [ "now", "red" ] ].map(
            ([ text, colour ]) => make(
                "span", {className: "key", style: {"--of": `var(--${colour})`}}, text + "  "));
        const about = `A cell is a sector, 32 bytes. Rows of a tensor stand below one another, ${
            STRIP} of them; the next ${
            STRIP} stand beside them. What this block has read has the tensor's colour.`;
        this.root.append(
            make("h2", {}, "Tensors in global memory ",
                 make("span", {className: "note"}, ...keys)),
            make("p", {className: "note"}, about),
            make("div", {className: "all-tensors"}, ...this.pictures.map(({root}) => root)));
        this.used = false;
    }

    picture(buffer) {
        const columns = Math.max(1, Math.round((buffer.row_bytes ?? 32) / 32)); // sectors in a row
        const cells = Math.ceil(buffer.bytes / 32);
        const rows = Math.ceil(cells / columns);
        const canvas = make("canvas");
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${buffer.name}: what has been read and written`);
        const note = make("span", {className: "note"});
        const root = make("div", {className: "tensor"},
                          make("div", {}, make("strong", {}, buffer.name), " ", note), canvas);
        return {buffer, canvas, note, root, columns, cells, strips: Math.ceil(rows / STRIP), rows};
    }

    /// For each cell of each tensor: the first step that reads it, and the first that writes it.
    findUses() {
        const {trace} = this.player;
        this.used = true;
        for (const picture of this.pictures) {
            picture.read = new Int32Array(picture.cells).fill(2 ** 31 - 1);
            picture.written = new Int32Array(picture.cells).fill(2 ** 31 - 1);
        }
        for (let step = 0; step < trace.count; ++step) {
            if (trace.warp[step] === ENGINE ||
                (trace.siteOf(step).space !== "global" && !trace.pattern2[step]))
                continue;
            for (const {address, bytes, kind} of trace.globalPieces(step)) {
                const picture = this.pictures[trace.bufferAt(address)];
                if (!picture)
                    continue;
                const first = kind === "write" ? picture.written : picture.read;
                this.forCells(picture, address, bytes,
                              (cell) => (first[cell] = Math.min(first[cell], step)));
            }
        }
    }

    forCells(picture, address, bytes, use) {
        const from = address - picture.buffer.at;
        for (let cell = Math.floor(from / 32); cell * 32 < from + bytes; ++cell) {
            if (cell >= 0 && cell < picture.cells)
                use(cell);
        }
    }

    draw() {
        if (this.root.hidden || this.root.clientWidth === 0)
            return;
        if (!this.used)
            this.findUses();
        const now = this.player.trace.globalPieces(this.player.at);
        for (const picture of this.pictures)
            this.paint(picture, now);
    }

    paint(picture, now) {
        const {trace, at} = this.player;
        const {columns, rows, strips, cells, buffer} = picture;
        const across = strips * (columns + 1);
        const size = Math.max(2, Math.min(6, Math.floor(this.root.clientWidth / across)));
        const context = fit(picture.canvas, across * size, Math.min(rows, STRIP) * size);
        context.fillStyle = palette.page;
        context.fillRect(0, 0, across * size, STRIP * size);
        const gap = size > 3 ? 1 : 0;
        const put = (cell, colour) => {
            const row = Math.floor(cell / columns);
            const x = (Math.floor(row / STRIP) * (columns + 1) + (cell % columns)) * size;
            context.fillStyle = colour;
            context.fillRect(x, (row % STRIP) * size, size - gap, size - gap);
        };
        let read = 0;
        let written = 0;
        const own = tint(buffer.name, 1.6);
        for (let cell = 0; cell < cells; ++cell) {
            const isRead = picture.read[cell] <= at;
            const isWritten = picture.written[cell] <= at;
            read += isRead;
            written += isWritten;
            put(cell, isWritten ? palette.orange : isRead ? own : palette.grid);
        }
        for (const {address, bytes} of now) {
            if (trace.buffers[trace.bufferAt(address)] === buffer)
                this.forCells(picture, address, bytes, (cell) => put(cell, palette.red));
        }
        const share = (count) => Math.round((100 * count) / cells) + "%";
        picture.note.textContent =
            `${read ? `${share(read)} read ` : ""}${written ? `${share(written)} written` : ""}`;
    }
}
