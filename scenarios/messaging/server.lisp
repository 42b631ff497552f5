;;;; The messaging server: echoes size-prefixed messages while CPU-bound threads count.
;;;;
;;;; Source: slides 12 to 19 of Beazley's "In Search of the Perfect GIL". See README.md in this
;;;; folder for what each line means.

(require :sb-bsd-sockets)

;;; Counters this far apart share no line of cache.
(defconstant +apart+ 8)

(defun echo (stream)
  (let ((head (make-array 4 :element-type '(unsigned-byte 8))))
    (loop while (= (read-sequence head stream) 4)
          do (let* ((size (reduce (lambda (sum byte) (+ (* 256 sum) byte)) head))
                    (message (make-array size :element-type '(unsigned-byte 8))))
               (read-sequence message stream)
               (write-sequence head stream)
               (finish-output stream)
               (write-sequence message stream)
               (finish-output stream)))))

(defun serve (listener)
  (loop
    (let ((conn (sb-bsd-sockets:socket-accept listener)))
      (setf (sb-bsd-sockets:sockopt-tcp-nodelay conn) t)
      (echo (sb-bsd-sockets:socket-make-stream conn :input t :output t :buffering :full
                                                    :element-type '(unsigned-byte 8)))
      (sb-bsd-sockets:socket-close conn))))

(defun spin (counts place)
  (declare (type (simple-array fixnum (*)) counts) (type fixnum place))
  (loop (incf (aref counts place))))

(defun argument (name default)
  (let ((found (member name sb-ext:*posix-argv* :test #'string=)))
    (if found (second found) default)))

(defun clock ()
  (multiple-value-bind (seconds microseconds) (sb-ext:get-time-of-day)
    (+ seconds (/ microseconds 1d6))))

(defun main ()
  (unless (string= (argument "--mode" "thread") "thread")
    (format t "{\"lacks\": \"only threads\"}~%")
    (sb-ext:exit :code 3))
  (let* ((workers (parse-integer (argument "--workers" "0")))
         (counts (make-array (* (1+ workers) +apart+) :element-type 'fixnum :initial-element 0))
         (places (loop for i below workers collect (* i +apart+)))
         (listener (make-instance 'sb-bsd-sockets:inet-socket :type :stream :protocol :tcp)))
    (sb-bsd-sockets:socket-bind listener #(127 0 0 1) 0)
    (sb-bsd-sockets:socket-listen listener 16)
    (sb-thread:make-thread #'serve :arguments (list listener))
    (dolist (place places)
      (sb-thread:make-thread #'spin :arguments (list counts place)))
    (format t "{\"port\": ~d}~%" (nth-value 1 (sb-bsd-sockets:socket-name listener)))
    (finish-output)
    (loop while (read-line *standard-input* nil)
          do (format t "{\"at\": ~,6f, \"counts\": [~{~d~^, ~}]}~%"
                     (clock) (mapcar (lambda (place) (aref counts place)) places))
             (finish-output))
    (sb-ext:exit :code 0 :abort t)))
