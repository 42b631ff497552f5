// Tells handwritten digits by their nearest neighbours: a task for each image.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

import java.util.Arrays;
import java.util.List;

public class Knn {
    private static final int NEIGHBOURS = 5;
    private static final int DIGITS = 10;

    private static int distance(int[] one, int[] other) {
        int sum = 0;
        for (int i = 0; i < Tasks.PIXELS; i++) {
            int difference = one[i] - other[i];
            sum += difference * difference;
        }
        return sum;
    }

    /** The digit that an image is, by all the others. */
    private static int classify(int[][] images, int query) {
        // The nearest so far, and one place for what is not among them.
        int[] distances = new int[NEIGHBOURS + 1];
        int[] digits = new int[NEIGHBOURS + 1];
        Arrays.fill(distances, Integer.MAX_VALUE);
        for (int i = 0; i < images.length; i++) {
            if (i == query) {
                continue;
            }
            int far = distance(images[query], images[i]);
            int place = NEIGHBOURS;
            // Of equally far ones the first stays before.
            for (; place > 0 && far < distances[place - 1]; place--) {
                distances[place] = distances[place - 1];
                digits[place] = digits[place - 1];
            }
            distances[place] = far;
            digits[place] = images[i][Tasks.PIXELS];
        }
        int[] votes = new int[DIGITS];
        for (int i = 0; i < NEIGHBOURS; i++) {
            votes[digits[i]]++;
        }
        int commonest = 0;
        for (int digit = 1; digit < DIGITS; digit++) {
            if (votes[digit] > votes[commonest]) {
                commonest = digit;
            }
        }
        return commonest;
    }

    public static void main(String[] arguments) throws Exception {
        Tasks tasks = new Tasks(arguments, 120, 0, 0);
        int[][] images = tasks.readImages();
        tasks.measure(tasks.work, () -> {
            List<Integer> told =
                    tasks.map(tasks.work, number -> classify(images, number % images.length));
            double right = 0;
            for (int i = 0; i < tasks.work; i++) {
                if (told.get(i) == images[i % images.length][Tasks.PIXELS]) {
                    right++;
                }
            }
            return right / tasks.work;
        });
    }
}
