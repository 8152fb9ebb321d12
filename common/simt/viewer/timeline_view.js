// The block's time, as an order of steps: a bar for each warp; for each tile that copies fill, when
// it is on its way and when it is there; for each warpgroup, its products under way.

const MARGIN = 92;

class TimelineView {
    constructor(player) {
        this.player = player;
        const {trace} = player;
        this.root = byId("timeline");
        this.from = 0;
        this.to = trace.count;
        this.lane = trace.warps > 8 ? 10 : 13; // pixels
        this.colours = trace.sites.map((site) => this.colourOf(site));
        this.findBars();
        this.waits = trace.ofWarp.map((list) => this.waitsOf(list));
        this.canvas = make("canvas", {tabIndex: 0});
        this.canvas.setAttribute("role", "slider");
        this.canvas.setAttribute("aria-label", "Position in the run; plus and minus zoom");
        this.canvas.setAttribute("aria-valuemin", "0");
        this.canvas.setAttribute("aria-valuemax", String(trace.count - 1));
        this.box = make("div", {className: "box"}, this.canvas);
        this.root.append(this.bar(), this.box);
        this.listen();
    }

    bar() {
        const zoom = (text, label, factor) => {
            const button = make("button", {type: "button", title: label, aria: {label}}, text);
            button.onclick = () => this.zoom(factor);
            return button;
        };
        const keys = [
            [ "shared memory", "blue" ], [ "global memory", "green" ], [ "products", "purple" ],
            [ "the rest", "rest" ], [ "waits", "wait" ]
        ];
        if (this.bars.some(({kind}) => kind === "coming"))
            keys.push([ "copy under way", "orange" ]);
        return make(
            "div",
            {className: "bar"},
            make("span", {}, zoom("+", "Zoom in", 0.25), " ", zoom("\u2212", "Zoom out", 4), " ",
                 zoom("all", "All of the run", Infinity)),
            make("span", {className: "note"}, "Left to right: order, not time."),
            make("span", {className: "note keys"},
                 ...keys.map(([ text, colour ]) => make(
                                 "span", {className: "key", style: {"--of": `var(--${colour})`}},
                                 text + "  "))),
        );
    }

    listen() {
        this.canvas.onpointerdown = (event) => {
            this.canvas.setPointerCapture(event.pointerId);
            this.click(event, false);
        };
        this.canvas.onpointermove = (event) => event.buttons && this.click(event, true);
        this.canvas.onwheel = (event) => {
            const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
            const zooms = event.ctrlKey || event.metaKey;
            if (!zooms && !sideways)
                return;
            event.preventDefault();
            if (zooms)
                this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.stepAt(event));
            else
                this.pan((event.deltaX || event.deltaY) / this.width);
        };
        this.canvas.onkeydown = (event) => {
            const factor = {"+": 0.5, "=": 0.5, "-": 2}[event.key];
            if (factor)
                this.zoom(factor);
        };
    }

    /// A copy is on its way to a tile, then the tile is there until the next copy to it begins.
    findBars() {
        const {trace} = this.player;
        const copies = new Map(); // tile and number of its copy: a bar
        const counts = new Map();
        this.bars = [];
        for (const work of trace.works) {
            if (work.steps.length === 0)
                continue;
            const [from, to] = [ work.steps[0], work.end < 0 ? trace.count : work.end ];
            if (work.kind === "wgmma") {
                if (work.warp % 4 === 0)
                    this.bars.push(
                        {kind: "product", row: `wgmma ${work.warp / 4}`, from, to, text: ""});
            } else if (work.kind === "store") {
                this.bars.push({kind: "store", row: "stores", from, to, text: ""});
            } else {
                for (const [tile, first] of this.tilesOf(work)) {
                    // groups of all warps that have the same number make one bar
                    const key = `${tile} ${work.kind === "cp.async" ? work.warp : ""}`;
                    const number = counts.get(key) ?? 0;
                    counts.set(key, number + 1);
                    const known = copies.get(`${tile} ${number}`);
                    if (known)
                        Object.assign(
                            known,
                            {from: Math.min(known.from, first), to: Math.max(known.to, to)});
                    else
                        copies.set(`${tile} ${number}`,
                                   {kind: "coming", row: tile, from: first, to, text: ""});
                }
            }
        }
        const ofTile = new Map();
        for (const bar of copies.values())
            ofTile.set(bar.row, [...(ofTile.get(bar.row) ?? []), bar ]);
        for (const [row, bars] of ofTile) {
            bars.sort((a, b) => a.from - b.from);
            bars.forEach((bar, i) => this.bars.push(bar, {
                kind: "there",
                row,
                from: bar.to,
                to: bars[i + 1]?.from ?? trace.count,
                text: row
            }));
        }
        this.placeRows([...ofTile.keys() ]);
    }

    tilesOf(work) {
        const {trace, names} = this.player;
        const tiles = new Map();
        for (const step of work.steps) {
            const tile = names.tile(trace.base[step]) ?? "copies";
            if (!tiles.has(tile))
                tiles.set(tile, step);
        }
        return tiles;
    }

    /// Rows in the order of the tiles' places; bars of one row that overlap go below one another.
    placeRows(tiles) {
        const places = new Map(this.player.names.variables.map(({name, at}) => [name, at]));
        const order = [...new Set(this.bars.map(({row}) => row)) ];
        const rank = (row) =>
            (tiles.includes(row) ? places.get(row) ?? 0 : 1e9 + order.indexOf(row));
        order.sort((a, b) => rank(a) - rank(b));
        this.rowAt = new Map();
        let next = this.player.trace.warps;
        for (const row of order) {
            const lanes = [];
            for (const bar of this.bars.filter((one) => one.row === row)
                     .sort((a, b) => a.from - b.from)) {
                let lane = lanes.findIndex((free) => free <= bar.from);
                if (lane < 0)
                    lane = lanes.push(0) - 1;
                lanes[lane] = bar.to;
                bar.lane = Math.min(lane, 3);
            }
            this.rowAt.set(row, next);
            next += Math.min(lanes.length, 4);
        }
        this.rowCount = next;
    }

    waitsOf(list) {
        const {trace} = this.player;
        const found = [];
        for (const step of list) {
            const end = trace.isWait(step) ? trace.waitEnd(step) : step;
            if (end > step)
                found.push([ step, Math.min(end, trace.count) ]);
        }
        return found;
    }

    get width() { return this.canvas.clientWidth - MARGIN; }
    x(step) { return MARGIN + ((step - this.from) / (this.to - this.from)) * this.width; }
    stepAt(event) {
        const box = this.canvas.getBoundingClientRect();
        const part = (event.clientX - box.left - MARGIN) / this.width;
        return Math.floor(this.from + Math.min(Math.max(part, 0), 1) * (this.to - this.from));
    }

    click(event, moving) {
        const {trace} = this.player;
        const box = this.canvas.getBoundingClientRect();
        const row = Math.floor((event.clientY - box.top) / this.lane);
        const step = Math.min(this.stepAt(event), trace.count - 1);
        if (row < trace.warps && !moving) {
            const place = Math.max(0, trace.lastOfWarp(row, step));
            return this.player.go(trace.ofWarp[row][place] ?? step);
        }
        return this.player.go(step);
    }

    zoom(factor, around = this.player.at) {
        const {count} = this.player.trace;
        const size = Math.min(count, Math.max(40, (this.to - this.from) * factor));
        const part = Math.min(Math.max((around - this.from) / (this.to - this.from), 0.1), 0.9);
        this.from = size === count ? 0 : Math.max(0, Math.min(count - size, around - part * size));
        this.to = this.from + size;
        this.draw();
    }

    pan(part) {
        const size = this.to - this.from;
        this.from = Math.max(0, Math.min(this.player.trace.count - size, this.from + part * size));
        this.to = this.from + size;
        this.draw();
    }

    colourOf({operation, space}) {
        if (operation === "mma" || operation === "wgmma")
            return "purple";
        if (LOADING.has(operation) || STORING.has(operation) || space === "global")
            return "green";
        return space === "shared" ? "blue" : "rest";
    }

    draw() {
        const {trace, at} = this.player;
        const width = this.box.clientWidth;
        if (width === 0)
            return;
        if (at < this.from || at >= this.to) {
            const size = this.to - this.from;
            this.from = Math.max(0, Math.min(trace.count - size, at - size / 3));
            this.to = this.from + size;
        }
        const height = this.rowCount * this.lane + 14;
        const context = fit(this.canvas, width, height);
        context.font = `${this.lane > 10 ? 10 : 9}px system-ui, sans-serif`;
        // What does not depend on the position is painted once.
        const painted = [ this.from, this.to, width, height, palette.page ].join();
        if (painted !== this.painted) {
            this.painted = painted;
            this.paint(context, width, height);
        } else {
            context.setTransform(1, 0, 0, 1, 0, 0);
            context.drawImage(this.copy, 0, 0);
            fit(this.canvas, width, height);
        }
        this.drawPosition(context, height);
        this.drawFault(context);
        this.canvas.setAttribute("aria-valuenow", String(at));
        this.canvas.setAttribute("aria-valuetext", `step ${at}`);
    }

    paint(context, width, height) {
        context.fillStyle = palette.page;
        context.fillRect(0, 0, width, height);
        for (let warp = 0; warp < this.player.trace.warps; ++warp)
            this.drawWarp(context, warp);
        this.drawBars(context);
        this.copy = make("canvas", {width: this.canvas.width, height: this.canvas.height});
        this.copy.getContext("2d").drawImage(this.canvas, 0, 0);
    }

    fill(context, from, to, y, height, least = 0) {
        const x = Math.max(this.x(from), MARGIN);
        const end = Math.min(this.x(to), MARGIN + this.width);
        if (end < MARGIN || x > MARGIN + this.width || end - x + least < 0.5)
            return 0;
        context.fillRect(x, y, Math.max(end - x, least), height);
        return end - x;
    }

    drawWarp(context, warp) {
        const {trace} = this.player;
        const y = warp * this.lane;
        context.fillStyle = palette.note;
        context.fillText(`warp ${warp}`, 2, y + this.lane - 3);
        const list = trace.ofWarp[warp];
        const pixel = (this.to - this.from) / this.width; // steps in one
        const gap = pixel < 0.2 ? 1 : 0;
        for (let place = Math.max(0, trace.lastOfWarp(warp, Math.floor(this.from)));
             place < list.length && list[place] < this.to;) {
            const step = list[place];
            const colour = palette[this.colours[trace.site[step]]];
            if (context.fillStyle !== colour)
                context.fillStyle = colour;
            const end = Math.min(list[place + 1] ?? step + trace.warps, step + 4 * trace.warps);
            this.fill(context, step, end - gap * pixel, y + 1, this.lane - 2, 1);
            // many steps lie in one pixel: on to the next
            place = pixel > 2
                        ? Math.max(place + 1, trace.lastOfWarp(warp, Math.floor(step + pixel)))
                        : place + 1;
        }
        for (const [from, to] of this.waits[warp]) {
            context.fillStyle = palette.page;
            this.fill(context, from + 1, to, y + 1, this.lane - 2);
            context.fillStyle = palette.wait;
            this.fill(context, from + 1, to, y + this.lane / 2 - 1, 2);
        }
    }

    drawBars(context) {
        for (const [row, place] of this.rowAt) {
            context.fillStyle = palette.note;
            context.fillText(row.slice(0, 16), 2, (place + 1) * this.lane - 3);
        }
        for (const {kind, from, to, row, lane, text} of this.bars) {
            if (to < this.from || from > this.to)
                continue;
            const y = (this.rowAt.get(row) + lane) * this.lane;
            context.fillStyle = {
                coming: palette.orange,
                product: palette.purple,
                store: palette.green,
                there: tint(row, 1.2)
            }[kind];
            const width =
                this.fill(context, from, to, y + 1, this.lane - 2, kind === "there" ? 0 : 1);
            if (text && width > 7 * text.length) {
                context.fillStyle = palette.ink;
                context.fillText(text, Math.max(this.x(from), MARGIN) + 3, y + this.lane - 3);
            }
        }
    }

    centre(step) {
        const {trace} = this.player;
        const warp =
            trace.warp[step] === ENGINE ? trace.works[trace.number[step]].warp : trace.warp[step];
        return [
            Math.min(Math.max(this.x(step), MARGIN), MARGIN + this.width),
            warp * this.lane + this.lane / 2
        ];
    }

    arrow(context, from, to, colour, dashes = []) {
        context.strokeStyle = context.fillStyle = colour;
        context.setLineDash(dashes);
        context.beginPath();
        context.moveTo(...from);
        context.lineTo(...to);
        context.stroke();
        context.setLineDash([]);
        context.beginPath();
        context.arc(...to, 3.5, 0, 7);
        context.fill();
    }

    /// Where we are; and from a wait an arrow to what ended it.
    drawPosition(context, height) {
        const {trace, at} = this.player;
        const x = this.x(at);
        context.strokeStyle = palette.red;
        context.lineWidth = 1.5;
        context.beginPath();
        context.moveTo(x, 0);
        context.lineTo(x, height - 12);
        context.stroke();
        context.fillStyle = palette.note;
        context.fillText(`step ${Math.floor(this.from).toLocaleString("en")}`, MARGIN, height - 2);
        const end = `${Math.floor(this.to).toLocaleString("en")}`;
        context.fillText(end, MARGIN + this.width - context.measureText(end).width, height - 2);
        const ended = trace.endedBy[at];
        if (trace.isWait(at) && ended > at)
            this.arrow(context, this.centre(at), this.centre(ended), palette.ink);
    }

    /// Both accesses of a race: nothing orders them.
    drawFault(context) {
        const {fault} = this.player.trace;
        if (fault?.where.step === undefined)
            return;
        const where = this.centre(fault.where.step);
        const other = fault.other?.step === undefined ? where : this.centre(fault.other.step);
        context.lineWidth = 1.5;
        this.arrow(context, where, other, palette.red, [ 4, 3 ]);
        this.arrow(context, where, where, palette.red);
    }
}
