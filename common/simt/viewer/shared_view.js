// Shared memory as rows of 32 banks. All of it can be reached by scrolling.

const ROW = 12; // pixels
const LABEL = 92;

class SharedView {
    constructor(player) {
        this.player = player;
        const {trace} = player;
        this.root = byId("shared");
        this.rows = Math.ceil(trace.shared.bytes / 128);
        this.selected = this.faultyCell();
        this.barriers = new Set(); // their cells
        for (const {at} of trace.barriers)
            if (at !== undefined)
                this.barriers.add(at / CELL).add(at / CELL + 1);
        this.follows = true;
        const follow = make("input", {type: "checkbox", checked: true});
        follow.onchange = () => (this.follows = follow.checked);
        const jumps = make("select", {aria: {label: "Go to a tile"}},
                           make("option", {value: ""}, "go to .."));
        for (const {name, at} of player.names.variables)
            jumps.append(make("option", {value: at}, name));
        jumps.onchange = () => jumps.value !== "" && this.reveal(Number(jumps.value), true);
        this.canvas = make("canvas", {tabIndex: 0});
        this.canvas.setAttribute("role", "application");
        this.canvas.setAttribute(
            "aria-label",
            "Shared memory: arrow keys choose a cell, Enter goes to its writer, r to its reader");
        this.scroll = make("div", {className: "scroll"}, this.canvas);
        this.spacer =
            make("div", {style: {height: this.rows * ROW + 16 + "px", "margin-top": "-1px"}});
        this.scroll.append(this.spacer);
        this.readOut = make("div", {className: "read-out", aria: {live: "polite"}});
        const title =
            make("h2", {}, `Shared memory, ${trace.shared.bytes.toLocaleString("en")} bytes `);
        this.root.append(title,
                         make("div", {className: "bar"}, jumps, " ",
                              make("label", {className: "note"}, follow, " follow")),
                         this.legend(), this.scroll, this.readOut);
        if (trace.shared.bytes === 0) {
            this.root.replaceChildren(make("p", {}, "This kernel uses no shared memory."));
            return;
        }
        this.scroll.onscroll = () => this.paint();
        this.canvas.onclick = (event) => this.choose(this.cellAt(event));
        this.canvas.onkeydown = (event) => this.key(event);
    }

    /// The first cell that both accesses of a race touch.
    faultyCell() {
        const {trace} = this.player;
        const {where, other} = trace.fault ?? {};
        if (where?.step === undefined || other?.step === undefined)
            return -1;
        const cells = (step) => trace.sharedPieces(step).flatMap(
            ({address, bytes}) => Array.from({length: Math.ceil(bytes / CELL)},
                                             (_, i) => Math.floor(address / CELL) + i));
        const others = new Set(cells(other.step));
        return cells(where.step).find((cell) => others.has(cell)) ?? -1;
    }

    legend() {
        const entries = [
            [ "read now (1, 2, ..: in which turn)", "blue" ], [ "written now", "orange" ],
            [ "a copy will overwrite it", "purple" ], [ "a product reads it", "green" ],
            [ "mbarrier", "rest" ], [ "not written yet", "panel" ]
        ];
        return make("p", {className: "note"},
                    ...entries.map(
                        ([ text, colour ]) =>
                            make("span", {className: "key", style: {"--of": `var(--${colour})`}},
                                 text + "  ")));
    }

    get cellWidth() { return Math.max(6, Math.floor((this.scroll.clientWidth - LABEL) / 32)); }

    cellAt(event) {
        const box = this.canvas.getBoundingClientRect();
        const bank = Math.floor((event.clientX - box.left - LABEL) / this.cellWidth);
        const row = Math.floor((event.clientY - box.top - 16 + this.scroll.scrollTop) / ROW);
        return bank < 0 || bank > 31 || row < 0 || row >= this.rows ? -1 : row * 32 + bank;
    }

    key(event) {
        const move = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -32, ArrowDown: 32}[event.key];
        if (move) {
            const cell = Math.min(Math.max(this.selected + move, 0), this.player.memory.cells - 1);
            this.reveal(cell * CELL, false);
            this.choose(cell);
        } else if (event.key === "Enter" && this.selected >= 0) {
            this.player.go(this.player.memory.writer[this.selected]);
        } else if (event.key === "r" && this.selected >= 0) {
            this.player.go(this.player.memory.nextUse(this.selected, this.player.at));
        } else {
            return;
        }
        event.preventDefault();
        event.stopPropagation();
    }

    choose(cell) {
        this.selected = cell;
        this.draw();
    }

    reveal(address, top) {
        const y = Math.floor(address / 128) * ROW;
        const {scrollTop, clientHeight} = this.scroll;
        if (top)
            this.scroll.scrollTop = y;
        else if (y < scrollTop || y > scrollTop + clientHeight - 40)
            this.scroll.scrollTop = Math.max(0, y - clientHeight / 3);
    }

    draw() {
        const {player} = this;
        if (player.trace.shared.bytes === 0)
            return;
        player.memory.goTo(player.at);
        this.pieces = player.trace.sharedPieces(player.at);
        if (this.follows && this.pieces.length > 0)
            this.reveal(Math.min(...this.pieces.map(({address}) => address)), false);
        this.describe();
        this.paint();
    }

    /// The turn in which each word is served, from 1 on. A turn serves one word of each bank, to 32
    /// lanes of up to 4 bytes, 16 of 8 or 8 of 16.
    turnsOfCells() {
        const turns = new Map();
        const {bytes = 0} = this.player.trace.siteOf(this.player.at);
        const perTurn = bytes > 4 ? 128 / bytes: 32;
        let before = 0; // turns of the lanes before
        for (let first = 0; first < 32; first += perTurn) {
            const ofBank = new Map();
            for (const {address, lane} of this.pieces) {
                if (lane < first || lane >= first + perTurn)
                    continue;
                for (let word = Math.floor(address / 4); word * 4 < address + bytes; ++word) {
                    const words = ofBank.get(word % 32) ?? [];
                    if (!words.includes(word))
                        words.push(word);
                    ofBank.set(word % 32, words);
                    if (!turns.has(word))
                        turns.set(word, before + words.indexOf(word) + 1);
                }
            }
            before += Math.max(0, ...[...ofBank.values()].map((words) => words.length));
        }
        return before > 1 ? turns : new Map();
    }

    paint() {
        const {trace, memory, names, at} = this.player;
        const width = this.scroll.clientWidth;
        const height = this.scroll.clientHeight;
        if (width === 0)
            return;
        const context = fit(this.canvas, width, height);
        this.spacer.style.marginTop = -height + "px";
        const cell = this.cellWidth;
        const first = Math.floor(this.scroll.scrollTop / ROW);
        context.fillStyle = palette.page;
        context.fillRect(0, 0, width, height);
        context.font = "10px ui-monospace, monospace";
        const kinds = new Map();
        for (const {work, cells} of this.cellsUnderWay())
            for (const one of cells)
                kinds.set(one, work.kind === "wgmma" ? "used" : "coming");
        const now = new Map();
        for (const {address, bytes, kind} of this.pieces) {
            for (let i = Math.floor(address / CELL); i * CELL < address + bytes; ++i)
                now.set(i, kind);
        }
        const turns = this.turnsOfCells();
        for (let row = first; row < Math.min(this.rows, first + height / ROW + 1); ++row) {
            const y = (row - first) * ROW + 16;
            const begins = names.variables.find(({at: place}) =>
                                                    place >= row * 128 && place < row * 128 + 128);
            const found = names.element(row * 128);
            context.fillStyle = begins ? palette.ink : palette.note;
            const index = found?.variable.rows === 1 ? found.column : found?.row;
            const label = begins                ? begins.name
                          : index === undefined ? (found?.variable.name ?? `${row * 128}`)
                                                : `[${index}]`;
            context.fillText(label.slice(0, 15), 2, y + 9);
            for (let bank = 0; bank < 32; ++bank) {
                const number = row * 32 + bank;
                if (number >= memory.cells)
                    break;
                const x = LABEL + bank * cell;
                context.fillStyle = this.barriers.has(number) ? palette.rest
                                    : memory.writer[number] < 0
                                        ? palette.panel
                                        : tint(names.tile(number * CELL),
                                               at - memory.writer[number] < 400 ? 1 : 0.5);
                context.fillRect(x, y, cell - 1, ROW - 1);
                const kind = now.get(number);
                if (kinds.get(number) === "coming")
                    this.stripe(context, x, y, cell, palette.purple);
                if (kinds.get(number) === "used")
                    this.stripe(context, x, y, cell, palette.green);
                if (kind) {
                    context.fillStyle = kind === "write"   ? palette.orange
                                        : kind === "asked" ? palette.purple
                                                           : palette.blue;
                    context.fillRect(x, y, cell - 1, ROW - 1);
                    if (turns.has(number) && cell >= 9) {
                        context.fillStyle = palette.page;
                        context.fillText(turns.get(number), x + 1, y + 9);
                    }
                    // read while a copy is on its way there
                    if (kind.startsWith("read") && kinds.get(number) === "coming")
                        this.stripe(context, x, y, cell, palette.red);
                }
                if (number === this.selected) {
                    context.strokeStyle = palette.ink;
                    context.lineWidth = 2;
                    context.strokeRect(x, y, cell - 1, ROW - 1);
                }
            }
        }
        this.banks(context, width, cell);
    }

    /// The head: how many different words of each bank the instruction wants.
    banks(context, width, cell) {
        context.fillStyle = palette.panel;
        context.fillRect(0, 0, width, 15);
        context.fillStyle = palette.note;
        context.fillText("bank", 2, 11);
        const words = Array.from({length: 32}, () => new Set());
        const {bytes = 0} = this.player.trace.siteOf(this.player.at);
        for (const {address, lane} of this.pieces) {
            for (let word = Math.floor(address / 4); lane >= 0 && word * 4 < address + bytes;
                 ++word)
                words[word % 32].add(word);
        }
        const conflict = this.player.costs.extra[this.player.at] > 0;
        for (let bank = 0; bank < 32; ++bank) {
            const size = words[bank].size;
            context.fillStyle = size > 1 && conflict ? palette.red
                                : size               ? palette.blue
                                                     : palette.note;
            if (cell >= 14 || bank % 4 === 0)
                context.fillText(size > 1 && cell >= 14 ? `x${size}` : bank, LABEL + bank * cell,
                                 11);
        }
    }

    stripe(context, x, y, cell, colour) {
        context.strokeStyle = colour;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x, y + ROW - 2);
        context.lineTo(x + cell - 1, y);
        context.stroke();
    }

    cellsUnderWay() {
        const {trace, memory, at} = this.player;
        return memory.underWay(at).map((work) => {
            const cells = [];
            for (const start of work.steps) {
                if (start > at)
                    break;
                for (const {address, bytes, kind} of trace.sharedPieces(start)) {
                    if (kind === "write")
                        continue;
                    for (let i = Math.floor(address / CELL); i * CELL < address + bytes; ++i)
                        cells.push(i);
                }
            }
            return {work, cells};
        });
    }

    describe() {
        const {player, selected} = this;
        if (selected < 0) {
            this.readOut.replaceChildren(
                make("span", {className: "note"},
                     "Click a cell: who wrote it, what it holds, who reads it next."));
            return;
        }
        const {names, memory, trace, at} = player;
        const writer = memory.writer[selected];
        const parts =
            [ make("strong", {}, names.cell(selected * CELL)), `, bank ${selected % 32}` ];
        if (this.barriers.has(selected)) {
            parts.push(": an mbarrier; the tab beside tells its phase.");
        } else if (writer < 0) {
            parts.push(": nobody has written it yet.");
        } else {
            const values = names.values(memory.bytes, selected);
            const raw = [...memory.bytes.slice(selected * CELL, selected * CELL + CELL) ]
                            .map((byte) => byte.toString(16).padStart(2, "0"))
                            .join(" ");
            parts.push(values ? ` holds ${values.map(shortNumber).join(" and ")}`
                              : ` holds the bytes ${raw}`,
                       ". ");
            parts.push(player.link(writer, `written by warp ${trace.warp[writer]}, line ${
                                               trace.siteOf(writer).line}`),
                       ", ");
        }
        const reads = make("button", {className: "link", type: "button"}, "who uses it next");
        reads.onclick = () => player.go(memory.nextUse(selected, at));
        parts.push(" ", reads);
        this.readOut.replaceChildren(...parts);
    }
}
