// The source, with the line where each warp stands, and what each line has cost so far.

class SourceView {
    constructor(player) {
        this.player = player;
        const {trace, sources} = player;
        this.root = byId("source");
        this.rows = new Map(); // of visited lines
        this.files = Object.keys(sources);
        this.select = make("select", {aria: {label: "File"}});
        for (const file of this.files)
            this.select.append(make("option", {value: file}, file));
        this.select.onchange = () => this.show(this.select.value);
        const follow = make("input", {type: "checkbox", checked: true});
        follow.onchange = () => (this.follows = follow.checked);
        this.follows = true;
        this.body = make("tbody");
        this.scroll = make(
            "div", {className: "scroll", tabIndex: 0, aria: {label: "Lines of the source"}});
        const head = make(
            "tr", {},
            ...HEADS.map(([ text, title ]) => make(
                             "th", {title, className: text === "source" ? "name" : ""}, text)));
        this.scroll.append(make("table", {}, make("thead", {}, head), this.body));
        const bar = make("div", {className: "bar"}, this.select, " ",
                         make("label", {className: "note"}, follow, " follow"));
        this.root.append(bar, this.scroll);
        this.visited = new Set(trace.lines.map(({file, line}) => trace.files[file] + ":" + line));
        this.show(trace.files[trace.lines[this.busiest()]?.file] ?? this.files[0]);
    }

    busiest() {
        const {trace} = this.player;
        for (let i = 0; i < trace.count; ++i) {
            if (trace.lineOf(i) >= 0 && this.player.sources[trace.files[trace.siteOf(i).file]])
                return trace.lineOf(i);
        }
        return 0;
    }

    show(file) {
        if (file === this.file || !(file in this.player.sources))
            return;
        this.file = file;
        this.select.value = file;
        this.rows = new Map();
        const number = this.player.trace.files.indexOf(file);
        const {fault} = this.player.trace;
        const faulty = [ fault?.where, fault?.other ]
                           .filter((place) => place?.file === number)
                           .map(({line}) => line);
        const rows = this.player.sources[file].split("\n").map((text, i) => {
            const line = i + 1;
            const cells = {
                at: make("td", {className: "at"}),
                turns: make("td", {className: "cost"}),
                global: make("td", {className: "cost"}),
                other: make("td", {className: "cost"})
            };
            const comment = text.search(/\/\/|^\s*\/\/\//);
            const code = make("td", {}, comment < 0 ? text : text.slice(0, comment));
            if (comment >= 0)
                code.append(make("span", {className: "comment"}, text.slice(comment)));
            const row = make("tr", {}, cells.at, cells.turns, cells.global, cells.other,
                             make("td", {className: "number"}, line), code);
            if (faulty.includes(line))
                row.classList.add("fault");
            if (this.visited.has(file + ":" + line)) {
                row.classList.add("visited");
                row.title = "to its next execution";
                row.tabIndex = -1;
                row.onclick = () => this.player.go(this.player.nextOfLine(number, line));
                this.rows.set(line, {row, cells});
            }
            return row;
        });
        this.body.replaceChildren(...rows);
        this.here = null;
    }

    draw() {
        const {player} = this;
        const {trace, at} = player;
        const line = trace.lineOf(at);
        if (line >= 0 && this.follows)
            this.show(trace.files[trace.lines[line].file]);
        const number = trace.files.indexOf(this.file);
        const sums = player.costs.upTo(at);
        for (const [lineNumber, {cells}] of this.rows) {
            const own = trace.lineNumber(number, lineNumber);
            const cost = (name) => sums[own * METRICS.length + METRIC[name]];
            this.put(cells.turns, cost("wavefronts"),
                     cost("wavefronts") > 1.1 * cost("ideal_wavefronts"));
            this.put(cells.global, cost("sectors"), cost("sectors") > 1.3 * cost("ideal_sectors"));
            const others = [ "mma", "wgmma", "tma", "barriers", "collectives", "atomics" ].map(
                (name) => cost(name));
            this.put(cells.other, others.reduce((a, b) => a + b), false);
        }
        this.drawWarps(number);
        if (line >= 0 && this.follows && trace.lines[line].file === number)
            this.reveal(trace.lines[line].line);
    }

    put(cell, count, bad) {
        cell.textContent = count ? count.toLocaleString("en") : "";
        cell.classList.toggle("bad", bad);
    }

    /// The line of each warp: "0-3 5".
    drawWarps(file) {
        const {trace, at} = this.player;
        const standing = new Map();
        for (let warp = 0; warp < trace.warps; ++warp) {
            const place = trace.lastOfWarp(warp, at);
            if (place < 0 || this.player.words.state(warp, at).state === "done")
                continue;
            const site = trace.siteOf(trace.ofWarp[warp][place]);
            if (site.file === file)
                standing.set(site.line, [...(standing.get(site.line) ?? []), warp ]);
        }
        for (const [line, {row, cells}] of this.rows) {
            cells.at.textContent = standing.has(line) ? spans(standing.get(line)) : "";
            row.classList.toggle("here", this.isHere(file, line));
        }
    }

    isHere(file, line) {
        const site = this.player.trace.siteOf(this.player.at);
        return site.file === file && site.line === line;
    }

    reveal(line) {
        const row = this.body.rows[line - 1];
        if (!row)
            return;
        const {scrollTop, clientHeight} = this.scroll;
        const above = row.offsetTop - scrollTop;
        if (above < clientHeight / 4 || above > clientHeight * 3 / 4)
            this.scroll.scrollTop = row.offsetTop - clientHeight / 2;
    }
}

const HEADS = [
    [ "warps", "the warps that stand here" ],
    [ "turns", "turns of shared memory so far; red: bank conflicts" ],
    [ "sectors", "sectors of global memory so far; red: more than the bytes would fill" ],
    [ "other", "products, copies by TMA, barriers, shuffles and atomic operations so far" ],
    [ "", "line" ],
    [ "source", "" ],
];

/// "0-3 5" of [0, 1, 2, 3, 5].
function spans(numbers) {
    const parts = [];
    for (let i = 0; i < numbers.length; ++i) {
        const first = numbers[i];
        while (numbers[i + 1] === numbers[i] + 1)
            ++i;
        parts.push(first === numbers[i] ? `${first}` : `${first}-${numbers[i]}`);
    }
    return parts.join(" ");
}
