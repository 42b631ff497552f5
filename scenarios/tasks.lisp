;;;; What fib, kmeans, knn and trees share in Common Lisp: arguments, modes, what is measured. See
;;;; TASKS.md. Threads are those of lparallel; forks are made for each map, as the library `future`
;;;; makes them.

(require :asdf)
(require :sb-posix)

(when (asdf:find-system :lparallel nil)
  (asdf:load-system :lparallel))

(defconstant +pixels+ 64)

;;; A mode that there is not: so the program ends, after a line that says why.
(defconstant +lacks+ 3)

(defvar *mode*)
(defvar *workers*)

;;; What collectors of children have taken, in internal time units.
(defvar *gc-of-children* 0)

(defun lack (what)
  (format t "{\"lacks\": \"~a\"}~%" what)
  (sb-ext:exit :code +lacks+))

(defun argument (name default)
  (let ((found (member name sb-ext:*posix-argv* :test #'string=)))
    (if found (second found) default)))

(defun number-argument (name default)
  (parse-integer (argument name (princ-to-string default))))

(defun parse-mode ()
  (setf *mode* (argument "--mode" "sequential")
        *workers* (number-argument "--workers" 1))
  (unless (member *mode* '("sequential" "thread" "fork") :test #'string=)
    (lack "SBCL has threads and forks"))
  #-lparallel
  (when (string= *mode* "thread")
    (lack "lparallel: apt-get install cl-lparallel")))

(defun open-pool ()
  #+lparallel
  (when (string= *mode* "thread")
    (setf lparallel:*kernel* (lparallel:make-kernel *workers*))
    (lparallel:broadcast-task (constantly nil))))

(defun close-pool ()
  #+lparallel
  (when (string= *mode* "thread")
    (lparallel:end-kernel :wait t)))

#+lparallel
(defun map-in-threads (call tasks)
  (mapcar #'lparallel:force
          (loop for each below tasks
                collect (let ((number each))
                          (lparallel:future (funcall call number))))))

(defun send-results (output call numbers)
  (let* ((gc-before sb-ext:*gc-run-time*)
         (results (mapcar call numbers))
         (stream (sb-sys:make-fd-stream output :output t :buffering :full)))
    (with-standard-io-syntax
      (prin1 (cons (- sb-ext:*gc-run-time* gc-before) results) stream))
    (finish-output stream)))

(defun fork-worker (call numbers)
  "The process, and a stream from which its results can be read."
  (multiple-value-bind (input output) (sb-posix:pipe)
    (let ((child (sb-posix:fork)))
      (when (zerop child)
        ;; Out of here in any case: the rest is the parent's.
        (unwind-protect
             (progn (send-results output call numbers)
                    (sb-ext:exit :code 0 :abort t))
          (sb-ext:exit :code 1 :abort t)))
      (sb-posix:close output)
      (list child (sb-sys:make-fd-stream input :buffering :full)))))

(defun read-results (child stream)
  (destructuring-bind (&optional (gc 0) &rest results)
      (with-standard-io-syntax (read stream nil))
    (close stream)
    (unless (zerop (nth-value 1 (sb-posix:waitpid child 0)))
      (error "a child failed"))
    (incf *gc-of-children* gc)
    results))

(defun map-in-forks (call tasks)
  (let ((children (loop for worker below *workers*
                        collect (fork-worker call (loop for number from worker below tasks
                                                          by *workers*
                                                        collect number))))
        (all (make-list tasks)))
    (loop for (child stream) in children
          for worker from 0
          do (loop for result in (read-results child stream)
                   for place on (nthcdr worker all) by (lambda (rest) (nthcdr *workers* rest))
                   do (setf (car place) result)))
    all))

(defun map-tasks (call tasks)
  "What the calls with each number below TASKS return."
  (cond ((string= *mode* "fork") (map-in-forks call tasks))
        #+lparallel
        ((string= *mode* "thread") (map-in-threads call tasks))
        (t (loop for number below tasks collect (funcall call number)))))

(defun read-images ()
  "The images of handwritten digits, and which digit each is."
  (with-open-file (lines (argument "--data" "digits.csv"))
    (loop for line = (read-line lines nil)
          while line
          for row = (read-from-string (format nil "(~a)" (substitute #\Space #\, line)))
          collect (coerce (butlast row) '(simple-array fixnum (*))) into images
          collect (car (last row)) into labels
          finally (return (values (coerce images 'simple-vector)
                                  (coerce labels 'simple-vector))))))

;;; CLOCK_MONOTONIC of Linux: SBCL's own clock goes on by 4 ms.
(defconstant +monotonic+ 1)

(defun clock ()
  (multiple-value-bind (seconds nanoseconds) (sb-unix::clock-gettime +monotonic+)
    (+ seconds (/ nanoseconds 1d9))))

(defun cpu-s ()
  (/ (loop for who in (list sb-unix:rusage_self sb-unix:rusage_children)
           sum (multiple-value-bind (told user system) (sb-unix:unix-getrusage who)
                 (assert told)
                 (+ user system)))
     1d6))

(defun measure (calls body)
  "Runs BODY, which makes so many CALLS and returns the result, and prints one line about it."
  (let ((cpu-before-s (cpu-s)))
    (open-pool)
    (map-tasks #'identity *workers*)
    (setf *gc-of-children* 0)
    (let* ((gc-before sb-ext:*gc-run-time*)
           (begun (clock))
           (result (funcall body))
           (elapsed-s (- (clock) begun))
           (gc (+ (- sb-ext:*gc-run-time* gc-before) *gc-of-children*)))
      (close-pool)
      (format t "{\"elapsed_s\": ~,9f, \"calls\": ~d, \"cpu_s\": ~,6f, \"gc_s\": ~,6f, ~
                 \"result\": ~f}~%"
              elapsed-s calls (- (cpu-s) cpu-before-s)
              (/ gc (float internal-time-units-per-second 1d0)) (float result 1d0)))))
