// Groups images of handwritten digits by k-means: in each round, a task for each part of them.
//
// Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

import java.util.List;

public class Kmeans {
    private static final int GROUPS = 10;
    private static final int PARTS = 16;

    /** Of some images: for each group the sum and the number of those nearest to its centre; and
     * the sum of their squared distances. */
    private static final class Part {
        final int[][] sums = new int[GROUPS][Tasks.PIXELS];
        final int[] counts = new int[GROUPS];
        double inertia;
    }

    private static double distance(int[] image, double[] centre) {
        double sum = 0;
        for (int i = 0; i < Tasks.PIXELS; i++) {
            double difference = image[i] - centre[i];
            sum += difference * difference;
        }
        return sum;
    }

    private static Part assign(int[][] images, int begin, int end, double[][] centres) {
        Part part = new Part();
        for (int i = begin; i < end; i++) {
            double nearest = distance(images[i], centres[0]);
            int group = 0;
            for (int other = 1; other < GROUPS; other++) {
                double far = distance(images[i], centres[other]);
                if (far < nearest) {
                    nearest = far;
                    group = other;
                }
            }
            int[] sum = part.sums[group];
            for (int pixel = 0; pixel < Tasks.PIXELS; pixel++) {
                sum[pixel] += images[i][pixel];
            }
            part.counts[group]++;
            part.inertia += nearest;
        }
        return part;
    }

    private static void move(double[] centre, int group, List<Part> parts) {
        int count = 0;
        for (Part part : parts) {
            count += part.counts[group];
        }
        if (count == 0) {
            return;
        }
        for (int pixel = 0; pixel < Tasks.PIXELS; pixel++) {
            int sum = 0;
            for (Part part : parts) {
                sum += part.sums[group][pixel];
            }
            centre[pixel] = (double) sum / count;
        }
    }

    private static double cluster(Tasks tasks, int[][] images) throws Exception {
        double[][] centres = new double[GROUPS][Tasks.PIXELS];
        for (int group = 0; group < GROUPS; group++) {
            for (int pixel = 0; pixel < Tasks.PIXELS; pixel++) {
                centres[group][pixel] = images[group][pixel];
            }
        }
        double inertia = 0;
        for (int round = 0; round < tasks.work; round++) {
            List<Part> parts = tasks.map(PARTS, number -> assign(
                    images, images.length * number / PARTS, images.length * (number + 1) / PARTS,
                    centres));
            inertia = 0;
            for (Part part : parts) {
                inertia += part.inertia;
            }
            for (int group = 0; group < GROUPS; group++) {
                move(centres[group], group, parts);
            }
        }
        return inertia;
    }

    public static void main(String[] arguments) throws Exception {
        Tasks tasks = new Tasks(arguments, 10, 0, 0);
        int[][] images = tasks.readImages();
        tasks.measure(tasks.work * PARTS, () -> cluster(tasks, images));
    }
}
