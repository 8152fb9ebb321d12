// A step in words.

class Words {
  constructor(trace, names, costs) {
    Object.assign(this, { trace, names, costs });
  }

  who(step) {
    const lanes = this.trace.lanes(step);
    const count = popcount(lanes);
    const warp = `Warp ${this.trace.warp[step]}`;
    if (count === 32) return warp;
    if (count === 1) return `${warp}, lane ${31 - Math.clz32(lanes)},`;
    return `${warp}, ${count} of its lanes,`;
  }

  /// Where pieces lie: "K[0][0] to K[31][3]".
  range(pieces, name) {
    if (pieces.length === 0) return "nothing";
    const low = pieces.reduce((a, b) => (b.address < a.address ? b : a));
    const high = pieces.reduce((a, b) => (b.address + b.bytes > a.address + a.bytes ? b : a));
    const [from, to] = [name(low.address), name(high.address + high.bytes - 1)];
    return from === to ? from : `${from} to ${to}`;
  }

  shared(pieces) {
    const tiles = [...new Set(pieces.map(({ address }) => this.names.tile(address) ?? "shared memory"))];
    if (pieces.length <= 32 && tiles.length === 1) return this.range(pieces, (address) => this.names.cell(address));
    return tiles.join(", ");
  }

  global(pieces) {
    const { buffers } = this.trace;
    const names = [...new Set(pieces.map(({ address }) => buffers[this.trace.bufferAt(address)]?.name ?? "memory"))];
    return names.join(", ");
  }

  turns(step) {
    const cost = this.costs.of(step) ?? {};
    if (cost.wavefronts) {
      const { wavefronts: turns, ideal_wavefronts: ideal } = cost;
      if (turns > ideal) return ` It takes ${plural(turns, "turn")}, because lanes want different words of the same bank; ${ideal} would do.`;
      return ` It takes ${plural(turns, "turn")}: no two lanes want different words of one bank at once.`;
    }
    if (cost.sectors) {
      const { sectors, ideal_sectors: ideal } = cost;
      return ` It moves ${plural(sectors, "sector")} of 32 bytes${sectors > ideal ? `; side by side, the same bytes would fill ${ideal}` : ""}.`;
    }
    return "";
  }

  of(step) {
    const { trace } = this;
    const site = trace.siteOf(step);
    if (trace.warp[step] === ENGINE) {
      const work = trace.works[trace.number[step]];
      return `The copy engine: what warp ${work.warp} asked for has landed in ${this.shared(trace.sharedPieces(step))}.`;
    }
    const who = this.who(step);
    const pieces = trace.sharedPieces(step);
    const global = trace.globalPieces(step);
    const barrier = site.barrier === undefined ? "" : this.names.barrier(site.barrier);
    const each = site.bytes ? `${site.bytes} bytes a lane` : "";
    const number = trace.number[step];
    const told = {
      line: () => `${who} comes to ${this.line(site)}.`,
      load: () => `${who} reads ${each} of ${site.space === "shared" ? this.shared(pieces) : this.global(global)}.`,
      store: () => `${who} writes ${each} to ${site.space === "shared" ? this.shared(pieces) : this.global(global)}.`,
      atomic: () => `${who} updates ${site.space === "shared" ? this.shared(pieces) : this.global(global)} atomically.`,
      "cp.async": () => `${who} starts a copy (cp.async), ${each}, to ${this.shared(pieces)}.`,
      ldmatrix: () => `${who} reads four 8 x 8 matrices of ${this.shared(pieces)} (ldmatrix): each lane names a row.`,
      mma: () => `${who} multiplies fragments on its tensor core (mma m16n8k16).`,
      wgmma: () => `${who} asks, with its warpgroup, for a product of tiles in ${this.shared(pieces)} (wgmma).`,
      collective: () => `${who}: its lanes exchange values (a shuffle or a vote).`,
      __syncwarp: () => `${who} meets: __syncwarp.`,
      mbarrier_init: () => `${who} makes ${barrier}: ${plural(number, "arrival")} will end a phase.`,
      mbarrier_wait: () => number < 0 ? `${who} waits at ${barrier} for the phase before the first, which counts as over.` : `${who} waits at ${barrier} for the end of its phase ${number}.`,
      mbarrier_arrive: () => `${who} arrives at ${barrier}, in phase ${number}.`,
      mbarrier_expect_tx: () => `${who} arrives at ${barrier}, in phase ${number}, and says that ${plural(trace.base2[step], "byte")} will come.`,
      cp_async_mbarrier_arrive: () => `${who} will arrive at ${barrier} once its copies have landed.`,
      named_barrier_sync: () => `${who} comes to ${barrier} and waits there.`,
      named_barrier_arrive: () => `${who} arrives at ${barrier} and goes on.`,
      cp_async_commit: () => `${who} closes a group of copies.`,
      cp_async_wait: () => `${who} waits until at most ${plural(number, "group")} of its copies ${number === 1 ? "is" : "are"} under way.`,
      wgmma_commit: () => `${who} closes a group of products.`,
      wgmma_wait: () => `${who} waits until at most ${plural(number, "group")} of its products ${number === 1 ? "is" : "are"} under way.`,
      bulk_commit: () => `${who} closes a group of stores.`,
      bulk_wait: () => `${who} waits until its stores are complete.`,
      bulk_wait_read: () => `${who} waits until its stores have read shared memory.`,
      give_registers: () => `${who} gives registers away: it keeps ${number} a thread.`,
      take_registers: () => `${who} takes registers: it has ${number} a thread.`,
    };
    if (site.operation.startsWith("__syncthreads")) return `${who} comes to the block's barrier (${site.operation}).`;
    if (LOADING.has(site.operation)) return `${who} asks the copy engine for ${plural(trace.bytesOf(step), "byte")} of ${this.global(global)}, into ${this.shared(pieces)} (${site.operation}).`;
    if (STORING.has(site.operation)) return `${who} has the copy engine ${site.operation === "bulk_reduce_add" ? "add" : "store"} ${this.shared(pieces)} to ${this.global(global)} (${site.operation}).`;
    return (told[site.operation] ?? (() => `${who}: ${site.operation}.`))() + this.turns(step);
  }

  /// "line 121", with the file if it is another one than the kernel's.
  line({ file, line }) {
    const name = this.trace.files[file] ?? "";
    return name.startsWith("common/") ? `${name.replace(/.*[/]/, "")}:${line}` : `line ${line}`;
  }

  /// What a warp does or waits for at a step, in a few words.
  state(warp, at) {
    const { trace } = this;
    const place = trace.lastOfWarp(warp, at);
    if (place < 0) return { state: "idle", text: "has not begun" };
    const step = trace.ofWarp[warp][place];
    const site = trace.siteOf(step);
    if (trace.isWait(step) && trace.waitEnd(step) > at) {
      const what = site.barrier === undefined ? site.operation : this.names.barrier(site.barrier);
      return { state: "waiting", text: `${this.line(site)}: waits for ${what}`, step };
    }
    if (place === trace.ofWarp[warp].length - 1 && !trace.fault && step < at) return { state: "done", text: "has left the kernel", step };
    return { state: "running", text: `${this.line(site)}: ${site.operation === "line" ? "computes" : site.operation}`, step };
  }
}
