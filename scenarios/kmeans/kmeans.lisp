;;;; Groups images of handwritten digits by k-means: in each round, a task for each part of them.
;;;;
;;;; Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

(load (merge-pathnames "../tasks.lisp" *load-truename*))

(declaim (optimize (speed 2)))

(defconstant +groups+ 10)
(defconstant +parts+ 16)

(deftype image () `(simple-array fixnum (,+pixels+)))
(deftype centre () `(simple-array double-float (,+pixels+)))

(defun zeros ()
  (make-array +pixels+ :element-type 'fixnum :initial-element 0))

(declaim (inline distance))
(defun distance (image centre)
  (declare (type image image) (type centre centre))
  (let ((sum 0d0))
    (declare (type double-float sum))
    (dotimes (at +pixels+ sum)
      (let ((difference (- (aref image at) (aref centre at))))
        (incf sum (* difference difference))))))

(defun assign (images begin end centres)
  "Of these images: for each group the sum and the number of those nearest to its centre; and the
sum of their squared distances. In lists, which forks can print."
  (declare (type simple-vector images centres) (type fixnum begin end))
  (let ((sums (loop repeat +groups+ collect (zeros)))
        (counts (make-list +groups+ :initial-element 0))
        (inertia 0d0))
    (declare (type double-float inertia))
    (loop for place from begin below end
          do (let* ((image (svref images place))
                    (group 0)
                    (nearest (distance image (svref centres 0))))
               (declare (type image image) (type double-float nearest))
               (loop for other from 1 below +groups+
                     do (let ((far (distance image (svref centres other))))
                          (when (< far nearest)
                            (setf nearest far
                                  group other))))
               (let ((sum (nth group sums)))
                 (declare (type image sum))
                 (dotimes (at +pixels+)
                   (incf (aref sum at) (aref image at))))
               (incf (the fixnum (nth group counts)))
               (incf inertia nearest)))
    (list (mapcar (lambda (sum) (coerce sum 'list)) sums) counts inertia)))

(defun move-centre (centre group parts)
  (declare (type centre centre))
  (let ((sum (zeros))
        (count 0))
    (declare (type fixnum count))
    (loop for (sums counts) in parts
          do (loop for number of-type fixnum in (nth group sums)
                   for at from 0
                   do (incf (aref sum at) number))
             (incf count (the fixnum (nth group counts))))
    (when (plusp count)
      (dotimes (at +pixels+)
        (setf (aref centre at) (/ (float (aref sum at) 1d0) count))))))

(defun cluster (images rounds)
  (let ((centres (map 'simple-vector
                      (lambda (image) (map 'centre (lambda (number) (float number 1d0)) image))
                      (subseq images 0 +groups+)))
        (ends (loop for part to +parts+ collect (floor (* (length images) part) +parts+)))
        (inertia 0d0))
    (loop repeat rounds
          do (let ((parts (map-tasks (lambda (number)
                                       (assign images (nth number ends) (nth (1+ number) ends)
                                               centres))
                                     +parts+)))
               (setf inertia (reduce #'+ parts :key #'third))
               (dotimes (group +groups+)
                 (move-centre (svref centres group) group parts))))
    inertia))

(defun main ()
  (parse-mode)
  (let ((rounds (number-argument "--work" 10))
        (images (read-images)))
    (measure (* rounds +parts+) (lambda () (cluster images rounds)))))
