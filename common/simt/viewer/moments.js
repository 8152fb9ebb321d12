// Moments of a run: named by what happens there, so that an edited kernel keeps its links.
//
//   #step=1234         that step
//   #line=121          the first time that a warp comes to line 121 of the kernel's file
//   #barrier=3         the block's third barrier is complete
//   #conflict          the first bank conflict; #conflict=K: on a tile whose name begins with K
//   #wait=full.1       a warp waits at a barrier of that name: full[1], or K.full[1]
//   #phase=K.full.0    the first end of a phase of it
//   #mma, #wgmma, #ldmatrix, #tma_load, ..: the first such instruction; #mma=10: the tenth;
//                      #ldmatrix=K: the first on a tile whose name begins with K
//   #fault             the fault
//   #end               the last step

const squeeze = (name) => name.replace(/[[\]]/g, ".").replace(/\.+/g, ".").replace(/^\.|\.$/g, "");

class Moments {
    constructor(trace, names, costs) { Object.assign(this, {trace, names, costs}); }

    /// The step of a moment "barrier=3", from `after` on; -1 when there is none.
    find(moment, after = -1) {
        const [what, value = ""] = decodeURIComponent(moment).split("=");
        const kinds = {
            step: () => (Number(value) < this.trace.count ? Number(value) : -1),
            end: () => this.trace.count - 1,
            fault: () => this.trace.fault?.where.step ?? -1,
            other: () => this.trace.fault?.other?.step ?? -1,
            barrier: () => this.nth(Number(value || 1), after, (step) => this.isBarrierEnd(step)),
            conflict: () =>
                this.first(after, (step) => this.costs.extra[step] > 0 && this.isAt(step, value)),
            uncoalesced: () => this.first(after, (step) => this.costs.extraSectors[step] > 0),
            wait: () => this.first(after, (step) => this.waits(step) && this.isOf(step, value)),
            phase: () => this.first(
                after, (step) => this.trace.isWait(step) && this.isOf(step, value), true),
            line: () =>
                this.first(after, (step) => this.trace.siteOf(step).line === Number(value)),
        };
        if (what in kinds)
            return kinds[what]();
        const holds = (step) => this.trace.operation(step) === what;
        return isNaN(value) ? this.first(after, (step) => holds(step) && this.isAt(step, value))
                            : this.nth(Number(value || 1), after, holds);
    }

    first(after, holds, itsEnd = false) {
        for (let step = after + 1; step < this.trace.count; ++step) {
            if (holds(step))
                return itsEnd ? Math.min(this.trace.waitEnd(step), this.trace.count - 1) : step;
        }
        return -1;
    }

    nth(number, after, holds) {
        let step = after;
        for (let i = 0; i < number; ++i) {
            step = this.first(step, holds);
            if (step < 0)
                return -1;
        }
        return step;
    }

    isBarrierEnd(step) {
        return this.trace.operation(step).startsWith("__syncthreads") &&
               this.trace.endedBy[step] === step;
    }

    /// A wait that takes time.
    waits(step) {
        return this.trace.isWait(step) && this.trace.operation(step) !== "wgmma" &&
               this.trace.waitEnd(step) > step;
    }

    isOf(step, name) {
        const {barrier} = this.trace.siteOf(step);
        if (!name)
            return true;
        if (barrier === undefined)
            return false;
        const own = squeeze(this.names.barrier(barrier));
        return own === squeeze(name) || own.endsWith("." + squeeze(name)) ||
               own.startsWith(squeeze(name) + ".");
    }

    isAt(step, name) {
        return (!name || this.trace.sharedPieces(step).some(
                             ({address}) => (this.names.tile(address) ?? "").startsWith(name)));
    }
}
