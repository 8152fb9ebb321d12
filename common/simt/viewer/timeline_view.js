// The block's time, as an order of steps: a bar for each warp, for each copy and each product.

const LANE = 13; // pixels
const MARGIN = 92;

class TimelineView {
  constructor(player) {
    this.player = player;
    const { trace } = player;
    this.root = byId("timeline");
    this.from = 0;
    this.to = trace.count;
    this.packWorks();
    this.findWaits();
    this.canvas = make("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("aria-label", "Position in the run; plus and minus zoom");
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", String(trace.count - 1));
    const zoom = (text, label, factor) => {
      const button = make("button", { type: "button", title: label, aria: { label } }, text);
      button.onclick = () => this.zoom(factor);
      return button;
    };
    const keys = [["shared memory", "blue"], ["global memory", "green"], ["products", "purple"], ["other", "note"], ["waits", "wait"], ["copy or product under way", "orange"]];
    const bar = make(
      "div",
      { className: "bar" },
      make("span", {}, zoom("+", "Zoom in", 0.25), " ", zoom("\u2212", "Zoom out", 4), " ", zoom("all", "All of the run", Infinity)),
      make("span", { className: "note" }, "From left to right: order, not time."),
      make("span", { className: "note" }, ...keys.map(([text, colour]) => make("span", { className: "key", style: { "--of": `var(--${colour})` } }, text + "  "))),
    );
    this.root.append(bar, this.canvas);
    this.canvas.onpointerdown = (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.click(event);
    };
    this.canvas.onpointermove = (event) => event.buttons && this.click(event, true);
    this.canvas.onwheel = (event) => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY) && !event.shiftKey) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.stepAt(event));
      else this.pan((event.deltaX || event.deltaY) / this.width);
    };
    this.canvas.onkeydown = (event) => {
      const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
      if (factor) this.zoom(factor);
    };
  }

  /// Rows for works: each goes into the first that is free. Groups of cp.async of all warps that
  /// have the same number make one bar.
  packWorks() {
    const { trace, names } = this.player;
    const bars = [];
    const groups = new Map();
    const counts = new Map();
    for (const work of trace.works) {
      if (work.steps.length === 0 || (work.kind === "wgmma" && work.warp % 4 !== 0)) continue;
      const end = work.end < 0 ? trace.count : work.end;
      const tile = names.tile(trace.base[work.steps[0]]);
      const row = work.kind === "wgmma" ? `wgmma ${work.warp / 4}` : work.kind;
      if (work.kind === "cp.async") {
        const count = counts.get(work.warp) ?? 0;
        counts.set(work.warp, count + 1);
        if (groups.has(count)) {
          const bar = groups.get(count);
          bar.from = Math.min(bar.from, work.steps[0]);
          bar.to = Math.max(bar.to, end);
          continue;
        }
        groups.set(count, { from: work.steps[0], to: end, row, text: tile ?? "", work });
        bars.push(groups.get(count));
      } else {
        bars.push({ from: work.steps[0], to: end, row, text: tile ?? "", work });
      }
    }
    const rows = new Map();
    for (const bar of bars.sort((a, b) => a.from - b.from)) {
      const lanes = rows.get(bar.row) ?? [];
      let lane = lanes.findIndex((free) => free <= bar.from);
      if (lane < 0) lane = lanes.push(0) - 1;
      lanes[lane] = bar.to;
      bar.lane = lane;
      rows.set(bar.row, lanes);
    }
    this.rowAt = new Map();
    let next = trace.warps;
    for (const [row, lanes] of rows) {
      this.rowAt.set(row, next);
      next += Math.min(lanes.length, 8);
    }
    this.bars = bars;
    this.rowCount = next;
  }

  findWaits() {
    const { trace } = this.player;
    this.waits = trace.ofWarp.map((list) => {
      const found = [];
      for (const step of list) {
        const end = trace.isWait(step) ? trace.waitEnd(step) : step;
        if (end > step) found.push([step, Math.min(end, trace.count)]);
      }
      return found;
    });
  }

  get width() {
    return this.canvas.clientWidth - MARGIN;
  }
  x(step) {
    return MARGIN + ((step - this.from) / (this.to - this.from)) * this.width;
  }
  stepAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - MARGIN) / this.width;
    return Math.floor(this.from + Math.min(Math.max(part, 0), 1) * (this.to - this.from));
  }

  click(event, moving) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / LANE);
    const step = Math.min(this.stepAt(event), this.player.trace.count - 1);
    if (row < this.player.trace.warps && !moving) {
      const list = this.player.trace.ofWarp[row];
      const place = Math.max(0, this.player.trace.lastOfWarp(row, step));
      return this.player.go(list[place] ?? step);
    }
    return this.player.go(step);
  }

  zoom(factor, around = this.player.at) {
    const { count } = this.player.trace;
    const size = Math.min(count, Math.max(40, (this.to - this.from) * factor));
    const part = factor === Infinity ? 0 : (around - this.from) / (this.to - this.from);
    this.from = Math.max(0, Math.min(count - size, around - Math.min(Math.max(part, 0.1), 0.9) * size));
    if (size === count) this.from = 0;
    this.to = this.from + size;
    this.draw();
  }

  pan(part) {
    const size = this.to - this.from;
    this.from = Math.max(0, Math.min(this.player.trace.count - size, this.from + part * size));
    this.to = this.from + size;
    this.draw();
  }

  colourOf(step) {
    const { operation, space } = this.player.trace.siteOf(step);
    if (operation === "mma" || operation === "wgmma") return "purple";
    if (space === "shared" && !LOADING.has(operation)) return "blue";
    if (space === "global" || LOADING.has(operation)) return "green";
    return "note";
  }

  draw() {
    const { trace, at } = this.player;
    const width = this.root.clientWidth;
    if (width === 0) return;
    if (at < this.from || at >= this.to) {
      const size = this.to - this.from;
      this.from = Math.max(0, Math.min(trace.count - size, at - size / 3));
      this.to = this.from + size;
    }
    const height = this.rowCount * LANE + 14;
    const context = fit(this.canvas, width, height);
    context.fillStyle = palette.page;
    context.fillRect(0, 0, width, height);
    context.font = "10px system-ui, sans-serif";
    for (let warp = 0; warp < trace.warps; ++warp) this.drawWarp(context, warp);
    this.drawWorks(context);
    this.drawPosition(context, height);
    this.canvas.setAttribute("aria-valuenow", String(at));
    this.canvas.setAttribute("aria-valuetext", `step ${at}`);
  }

  drawWarp(context, warp) {
    const { trace, at } = this.player;
    const y = warp * LANE;
    context.fillStyle = trace.warp[at] === warp ? palette.ink : palette.note;
    context.fillText(`warp ${warp}`, 2, y + 10);
    const list = trace.ofWarp[warp];
    let place = Math.max(0, trace.lastOfWarp(warp, Math.floor(this.from)));
    const pixels = (this.to - this.from) / this.width; // steps in one
    let last = -1;
    for (; place < list.length && list[place] < this.to; ) {
      const step = list[place];
      const x = Math.max(this.x(step), MARGIN);
      const end = Math.min(this.x((list[place + 1] ?? step + 1)), MARGIN + this.width);
      if (x > last) {
        context.fillStyle = palette[this.colourOf(step)];
        context.fillRect(x, y + 2, Math.max(pixels < 0.5 ? end - x - 1 : end - x, 1), LANE - 4);
        last = x;
      }
      // many steps lie in one pixel: on to the next
      place = pixels > 2 ? Math.max(place + 1, trace.lastOfWarp(warp, Math.floor(step + pixels)) ) : place + 1;
    }
    context.fillStyle = palette.wait;
    for (const [from, to] of this.waits[warp]) {
      if (to < this.from || from > this.to) continue;
      const x = Math.max(this.x(from), MARGIN);
      const end = Math.min(this.x(to), MARGIN + this.width);
      if (end - x < 0.5) continue;
      context.fillStyle = palette.page;
      context.fillRect(x, y + 2, end - x, LANE - 4);
      context.fillStyle = palette.wait;
      context.fillRect(x, y + LANE / 2 - 1, end - x, 3);
    }
  }

  drawWorks(context) {
    for (const [row, y] of this.rowAt) {
      context.fillStyle = palette.note;
      context.fillText(row.slice(0, 16), 2, y * LANE + 10);
    }
    for (const { from, to, row, lane, text, work } of this.bars) {
      if (to < this.from || from > this.to || lane >= 8) continue;
      const y = (this.rowAt.get(row) + lane) * LANE;
      const x = Math.max(this.x(from), MARGIN);
      const end = Math.min(this.x(to), MARGIN + this.width);
      context.fillStyle = work.kind === "wgmma" ? palette.purple : text ? tint(text, 1.3) : palette.orange;
      context.fillRect(x, y + 1, Math.max(end - x, 1), LANE - 3);
      if (end - x > 8 * text.length && text) {
        context.fillStyle = palette.ink;
        context.fillText(text, x + 3, y + 10);
      }
    }
  }

  /// Where we are; and from a wait an arrow to what ended it.
  drawPosition(context, height) {
    const { trace, at } = this.player;
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
    if (trace.isWait(at) && ended > at) {
      const from = [x, trace.warp[at] * LANE + LANE / 2];
      const ender = trace.warp[ended] === ENGINE ? trace.works[trace.number[ended]].warp : trace.warp[ended];
      const to = [Math.min(this.x(ended), MARGIN + this.width), ender * LANE + LANE / 2];
      context.strokeStyle = palette.ink;
      context.beginPath();
      context.moveTo(...from);
      context.lineTo(...to);
      context.stroke();
      context.beginPath();
      context.arc(...to, 3.5, 0, 7);
      context.fillStyle = palette.ink;
      context.fill();
    }
  }
}
