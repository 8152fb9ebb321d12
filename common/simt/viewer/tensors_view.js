// Tensors in global memory: what this block has read and written of each, and the current access.

const GRID = 96; // cells of a picture, at most, from left to right

class TensorsView {
  constructor(player) {
    this.player = player;
    this.root = byId("tensors");
    const { trace } = player;
    this.pictures = trace.buffers.map((buffer) => this.picture(buffer));
    const keys = [["read", "blue"], ["written", "orange"], ["now", "red"]].map(([text, colour]) => make("span", { className: "key", style: { "--of": `var(--${colour})` } }, text + "  "));
    this.root.append(make("h2", {}, "Tensors in global memory ", make("span", { className: "note" }, ...keys)), make("p", { className: "note" }, "Each cell is one or more sectors of 32 bytes, row by row; what this block touches is filled in."));
    for (const { root } of this.pictures) this.root.append(root);
    this.at = -1;
    this.findUses();
  }

  /// A tensor that kernels use as rows of a head: so many bytes make a row of the picture.
  picture(buffer) {
    const sectors = Math.ceil(buffer.bytes / 32);
    const canvas = make("canvas");
    const title = make("div", {}, make("strong", {}, buffer.name), ` ${buffer.bytes.toLocaleString("en")} bytes `, make("span", { className: "note" }));
    // A cell stands for several sectors where there would be too many.
    const each = Math.max(1, 2 ** Math.ceil(Math.log2(sectors / (GRID * 120))));
    return { buffer, canvas, note: title.lastChild, each, cells: Math.ceil(sectors / each), root: make("div", { className: "tensor" }, title, canvas) };
  }

  /// For each cell of each tensor: the first step that reads it, and the first that writes it.
  findUses() {
    const { trace } = this.player;
    for (const picture of this.pictures) {
      picture.read = new Int32Array(picture.cells).fill(2 ** 31 - 1);
      picture.written = new Int32Array(picture.cells).fill(2 ** 31 - 1);
    }
    for (let step = 0; step < trace.count; ++step) {
      const { space } = trace.siteOf(step);
      if (space !== "global" && !trace.pattern2[step]) continue;
      for (const { address, bytes, kind } of trace.globalPieces(step)) {
        const picture = this.pictures[trace.bufferAt(address)];
        if (!picture) continue;
        const first = kind === "write" ? picture.written : picture.read;
        this.forCells(picture, address, bytes, (cell) => (first[cell] = Math.min(first[cell], step)));
      }
    }
  }

  forCells(picture, address, bytes, use) {
    const size = 32 * picture.each;
    const skew = picture.buffer.at;
    for (let cell = Math.floor((address - skew) / size); cell * size < address - skew + bytes; ++cell) {
      if (cell >= 0 && cell < picture.cells) use(cell);
    }
  }

  draw() {
    if (this.root.hidden || this.root.clientWidth === 0) return;
    const { trace, at } = this.player;
    const now = trace.globalPieces(at);
    for (const picture of this.pictures) {
      const width = this.root.clientWidth;
      const size = Math.max(3, Math.min(7, Math.floor(width / GRID)));
      const columns = Math.min(GRID, Math.floor(width / size));
      const context = fit(picture.canvas, width, Math.ceil(picture.cells / columns) * size);
      context.fillStyle = palette.page;
      context.fillRect(0, 0, width, picture.canvas.height);
      let read = 0;
      let written = 0;
      for (let cell = 0; cell < picture.cells; ++cell) {
        const isRead = picture.read[cell] <= at;
        const isWritten = picture.written[cell] <= at;
        read += isRead;
        written += isWritten;
        context.fillStyle = isWritten ? palette.orange : isRead ? tint(picture.buffer.name, 1.2) : palette.panel;
        context.fillRect((cell % columns) * size, Math.floor(cell / columns) * size, size - 1, size - 1);
      }
      context.fillStyle = palette.red;
      for (const { address, bytes } of now) {
        if (trace.buffers[trace.bufferAt(address)] !== picture.buffer) continue;
        this.forCells(picture, address, bytes, (cell) => context.fillRect((cell % columns) * size, Math.floor(cell / columns) * size, size - 1, size - 1));
      }
      const share = (count) => Math.round((100 * count) / picture.cells) + "%";
      picture.note.textContent = `read so far ${share(read)}, written ${share(written)}; a cell is ${plural(picture.each, "sector")}`;
    }
  }
}
