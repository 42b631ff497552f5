// Builds trees whose nodes know their parents, counts them and drops them: only the collector can
// take them back. See README.md in this folder.

import java.lang.ref.Reference;

public class Trees {
    private static final class Node {
        final Node parent;
        final Node left;
        final Node right;

        Node(Node parent, int depth) {
            this.parent = parent;
            left = depth > 0 ? new Node(this, depth - 1) : null;
            right = depth > 0 ? new Node(this, depth - 1) : null;
        }

        int count() {
            return 1 + (left != null ? left.count() + right.count() : 0);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Tasks tasks = new Tasks(arguments, 300, 11, 500000);
        Object[][] kept = new Object[tasks.heap][];
        for (int number = 0; number < tasks.heap; number++) {
            kept[number] = new Object[] {number};
        }
        tasks.measure(tasks.work, () -> {
            double sum = 0;
            for (int count : tasks.map(tasks.work, i -> new Node(null, tasks.size).count())) {
                sum += count;
            }
            return sum;
        });
        Reference.reachabilityFence(kept);
    }
}
