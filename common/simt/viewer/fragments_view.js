// Which lane holds which elements of the matrices of a tensor core's instruction.

class FragmentsView {
    constructor(player) {
        this.player = player;
        this.root = byId("fragments");
        this.lane = 0;
        this.kind = null;
    }

    /// The mma, ldmatrix or wgmma at this step, or this warp's last one.
    current() {
        const {trace, at} = this.player;
        const warp = Math.max(trace.warp[at], 0);
        const list = trace.ofWarp[warp];
        for (let place = trace.lastOfWarp(warp, at); place >= 0; --place) {
            if (trace.operation(list[place]) in FRAGMENTS)
                return list[place];
        }
        return -1;
    }

    draw() {
        if (this.root.hidden || this.root.clientWidth === 0)
            return;
        const step = this.current();
        const {trace, at} = this.player;
        if (step < 0) {
            this.root.replaceChildren(make("h2", {}, "Fragments"),
                                      make("p", {}, "This warp has used no tensor core so far."));
            return;
        }
        const operation = trace.operation(step);
        const {about, matrices} = FRAGMENTS[operation];
        const choose = make("select", {aria: {label: "Lane"}},
                            ...Array.from({length: 32}, (_, lane) => make("option", {value: lane},
                                                                           `lane ${lane}`)));
        choose.value = String(this.lane);
        choose.onchange = () => {
            this.lane = Number(choose.value);
            this.draw();
        };
        const when = step === at ? "now" : `last at step ${step.toLocaleString("en")}`;
        const grids =
            make("div", {className: "fragments"}, ...matrices.map((matrix) => this.grid(matrix)));
        const rows = operation === "ldmatrix"
                         ? make("p", {className: "note"},
                                `Lane ${this.lane} names ${this.rowOf(step, this.lane)}, row ${
                                    this.lane % 8} of matrix ${Math.floor(this.lane / 8)}.`)
                         : "";
        this.root.replaceChildren(
            make("h2", {},
                 `Fragments of ${operation}, warp ${Math.max(trace.warp[at], 0)} (${when})`),
            make("p", {}, about),
            make("p", {}, choose,
                 " is marked. A number in a cell is the lane that holds the element."),
            rows, grids);
    }

    rowOf(step, lane) {
        const piece = this.player.trace.sharedPieces(step).find((one) => one.lane === lane);
        return piece ? this.player.names.cell(piece.address) : "no row";
    }

    grid({name, rows, columns, lane}) {
        const size = 17;
        const canvas = make("canvas");
        const context = fit(canvas, columns * size + 1, rows * size + 1);
        context.font = "9px system-ui, sans-serif";
        for (let row = 0; row < rows; ++row) {
            for (let column = 0; column < columns; ++column) {
                const own = lane(row, column);
                const light = palette.dark ? 26 + (own % 4) * 5 : 92 - (own % 4) * 6;
                context.fillStyle = own === this.lane
                                        ? palette.orange
                                        : `hsl(${(Math.floor(own / 4) * 45) % 360} 50% ${light}%)`;
                context.fillRect(column * size, row * size, size - 1, size - 1);
                context.fillStyle = own === this.lane ? palette.page : palette.ink;
                context.fillText(own, column * size + 3, row * size + 12);
            }
        }
        canvas.onclick = (event) => {
            const box = canvas.getBoundingClientRect();
            this.lane = lane(Math.floor((event.clientY - box.top) / size),
                             Math.floor((event.clientX - box.left) / size));
            this.draw();
        };
        canvas.setAttribute("role", "img");
        canvas.setAttribute("aria-label", `${name}: which lane holds which element`);
        return make("div", {}, make("div", {}, name), canvas);
    }
}

const ofA = (row, column) => (row % 8) * 4 + ((column % 8) >> 1);
const ofB = (row, column) => column * 4 + ((row % 8) >> 1);
const matrix8 = (transposed) => (row, column) =>
    (transposed ? column * 4 + (row >> 1) : row * 4 + (column >> 1));
const FRAGMENTS = {
    mma: {
        about :
            "C += A B. A lane holds eight elements of A, four of B and four of C, in pairs " +
            "of neighbours. Put two C side by side and compare them with A: each lane holds " +
            "the same places in both. That is why P, which comes out as two C, goes in as an " +
            "A, and every number stays in its lane.",
        matrices: [
            {name: "A, 16 x 16", rows: 16, columns: 16, lane: ofA},
            {
                name: "two C side by side",
                rows: 16,
                columns: 16,
                lane: (row, column) => ofA(row, column % 8)
            },
            {name: "B, 16 x 8", rows: 16, columns: 8, lane: ofB},
            {name: "C, 16 x 8", rows: 16, columns: 8, lane: ofA},
        ],
    },
    ldmatrix: {
        about :
            "Four matrices of 8 x 8 elements. Each lane names one row of 16 bytes; " +
            "afterwards each lane holds two neighbours of one row of each matrix, as the " +
            "picture says; with .trans, of one column.",
        matrices: [
            {name: "each matrix", rows: 8, columns: 8, lane: matrix8(false)},
            {name: "with .trans", rows: 8, columns: 8, lane: matrix8(true)},
        ],
    },
    wgmma: {
        about :
            "A product of four warps: each has 16 rows of C, spread over its lanes as in " +
            "mma, eight columns after eight columns. B is read in shared memory, and so is " +
            "A unless it comes from registers, as the left picture shows.",
        matrices: [
            {name: "A from registers, 16 of 64 rows", rows: 16, columns: 16, lane: ofA},
            {
                name: "C, 16 of 64 rows, the first 16 columns",
                rows: 16,
                columns: 16,
                lane: (row, column) => ofA(row, column % 8)
            },
        ],
    },
};
