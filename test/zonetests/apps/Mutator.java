/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that never stop changing the heap of a JVM. Each step depends on what the steps before left behind, so one page
 * from another moment spoils all that follows. Mutator DIR: writes DIR/ready; when DIR/ask appears, all steps are replayed,
 * DIR/verdict says what came out, and it begins anew.
 */
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.HashMap;

public class Mutator {
	static final int PAGES = 4096, WORDS = 512, KEYS = 2000, THREADS = 2;
	static volatile boolean pause;

	static class Heap {
		long steps, chain;
		final long[][] page = new long[PAGES][WORDS];
		final HashMap<Integer, long[]> map = new HashMap<>();

		Heap(long seed) {
			chain = seed;
			for (int i = 0; i < PAGES; i++)
				for (int j = 0; j < WORDS; j++)
					page[i][j] = (seed + (long)i * WORDS + j) * 0x9e3779b97f4a7c15L;
		}

		void step() {
			long[] p = page[(int)Long.remainderUnsigned(chain, PAGES)];
			int at = (int)(chain >>> 40) % WORDS;

			for (int i = 0; i < 64; i++) {
				int w = (at + i * 9) % WORDS;
				chain = (chain ^ p[w]) * 0x9e3779b97f4a7c15L + steps;
				chain ^= chain >>> 31;
				p[w] += chain;
			}
			int key = (int)Long.remainderUnsigned(chain, KEYS);
			long[] old = map.get(key), fresh = new long[64 + (int)(chain >>> 56)];
			if (old != null)
				chain += old[(int)(chain >>> 50) % old.length];
			Arrays.fill(fresh, chain);	/* the old one is garbage: collectors move what stays */
			map.put(key, fresh);
			steps++;
		}

		boolean same(Heap s) {
			if (chain != s.chain || !map.keySet().equals(s.map.keySet()))
				return false;
			for (int key : map.keySet())
				if (!Arrays.equals(map.get(key), s.map.get(key)))
					return false;
			return Arrays.deepEquals(page, s.page);
		}
	}

	static class Worker extends Thread {
		final long seed;
		final Heap state;

		Worker(long seed) {
			this.seed = seed;
			state = new Heap(seed);
		}

		public void run() {
			try {
				while (!pause) {
					for (int i = 0; i < 50; i++)
						state.step();
					Thread.sleep(1);
				}
			} catch (InterruptedException e) {
				throw new RuntimeException(e);
			}
		}

		String verdict() {
			Heap again = new Heap(seed);
			while (again.steps < state.steps)
				again.step();
			return again.same(state) ? "" : "the heap is not what " + state.steps + " steps make of it";
		}
	}

	static void answer(Path dir, String name, String text) throws IOException {
		Path part = dir.resolve(name + ".part");
		Files.writeString(part, text + "\n");
		Files.move(part, dir.resolve(name), StandardCopyOption.ATOMIC_MOVE);
	}

	public static void main(String[] args) throws Exception {
		Path dir = Path.of(args[0]), ask = dir.resolve("ask");

		for (long seed = 1;; seed += THREADS) {
			Worker[] worker = new Worker[THREADS];
			pause = false;
			for (int i = 0; i < THREADS; i++)
				(worker[i] = new Worker(seed + i)).start();
			if (seed == 1)
				answer(dir, "ready", "ready");
			while (!Files.exists(ask))
				Thread.sleep(20);
			pause = true;
			long steps = 0;
			String bad = "";
			for (Worker w : worker) {
				w.join();
				bad += w.verdict();
				steps += w.state.steps;
			}
			Files.delete(ask);
			answer(dir, "verdict", bad.isEmpty() ? "PASS " + steps : "FAIL " + bad);
		}
	}
}
