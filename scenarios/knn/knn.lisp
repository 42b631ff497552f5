;;;; Tells handwritten digits by their nearest neighbours: a task for each image.
;;;;
;;;; Source: the benchmark of the Common Lisp library `future`. See README.md in this folder.

(load (merge-pathnames "../tasks.lisp" *load-truename*))

(declaim (optimize (speed 2)))

(defconstant +neighbours+ 5)
(defconstant +digits+ 10)

(deftype image () `(simple-array fixnum (,+pixels+)))

(declaim (inline distance))
(defun distance (one other)
  (declare (type image one other))
  (let ((sum 0))
    (declare (type fixnum sum))
    (dotimes (at +pixels+ sum)
      (let ((difference (- (aref one at) (aref other at))))
        (declare (type (signed-byte 16) difference))
        (incf sum (* difference difference))))))

(defun nearest (query images)
  "Places of the images nearest to this one, without itself."
  (declare (type simple-vector images) (type fixnum query))
  ;; The nearest so far, and one place for what is not among them.
  (let ((distances (make-array (1+ +neighbours+) :element-type 'fixnum
                                                 :initial-element most-positive-fixnum))
        (places (make-array (1+ +neighbours+) :element-type 'fixnum :initial-element 0))
        (image (svref images query)))
    (dotimes (other (length images) (subseq places 0 +neighbours+))
      (unless (= other query)
        (let ((far (distance image (svref images other)))
              (rank +neighbours+))
          (declare (type fixnum rank))
          ;; Of equally far ones the first stays before.
          (loop while (and (plusp rank) (< far (aref distances (1- rank))))
                do (setf (aref distances rank) (aref distances (1- rank))
                         (aref places rank) (aref places (1- rank)))
                   (decf rank))
          (setf (aref distances rank) far
                (aref places rank) other))))))

(defun vote (digits)
  "The commonest; of equally common ones the least."
  (let ((votes (make-array +digits+ :initial-element 0)))
    (map nil (lambda (digit) (incf (the fixnum (svref votes digit)))) digits)
    (position (reduce #'max votes) votes)))

(defun classify (query images labels)
  "The digit that an image is, by all the others."
  (vote (map 'vector (lambda (place) (svref labels place)) (nearest query images))))

(defun main ()
  (parse-mode)
  (let ((work (number-argument "--work" 120)))
    (multiple-value-bind (images labels) (read-images)
      (flet ((query (number)
               (mod number (length images))))
        (measure work
                 (lambda ()
                   (let ((told (map-tasks (lambda (number)
                                            (classify (query number) images labels))
                                          work)))
                     (/ (loop for digit in told
                              for number from 0
                              count (= digit (svref labels (query number))))
                        work))))))))
