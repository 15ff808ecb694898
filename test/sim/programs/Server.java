// SPDX-License-Identifier: GPL-2.0-only
// Records in a map, as an application server keeps them; a line "N" is answered with the length of page N.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public class Server {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[0]), rows = Integer.parseInt(args[1]);
        Map<Integer, List<String>> pages = new HashMap<>();
        for (int n = 0; n < count; n++) {
            List<String> page = new ArrayList<>();
            for (int r = 0; r < rows; r++)
                page.add("customer " + n + " booking " + r + " ".repeat(100 + r % 50));
            pages.put(n, page);
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            StringBuilder out = new StringBuilder();
            for (String row : pages.get(Integer.parseInt(line) % count))
                out.append(row);
            System.out.println(out.length());
        }
    }
}
